#pragma once

#include <memory>
#include <vector>

#include "distributed/process_groups.h"

namespace trainer::engine {

// The process groups of a run, one for each purpose that must not wait for the others. By default those of one process.
struct Ranks {
  std::shared_ptr<distributed::ProcessGroup> world = std::make_shared<distributed::ProcessGroup>();
  // Batch statistics are gathered while buckets of gradients are under way in `world`.
  std::shared_ptr<distributed::ProcessGroup> batch_norm = world;
  std::shared_ptr<distributed::ProcessGroup> control = world;
  std::vector<distributed::RankInfo> infos = {};  // of all ranks, by rank
  // What this rank does, for failure and straggler detection.
  std::shared_ptr<distributed::Activity> activity = std::make_shared<distributed::Activity>();
};
// Collective.
Ranks make_ranks(distributed::ProcessGroups& groups);

}  // namespace trainer::engine
