#pragma once
// What a Trainer needs of a Context beyond the functions of trainer/distributed.h.

#include "distributed/process_groups.h"
#include "trainer/distributed.h"

namespace trainer::distributed {

struct ContextAccess {
  static ProcessGroups& groups_of(Context& context);
  static int num_processes_sharing_cpus(const Context& context);
};

}  // namespace trainer::distributed
