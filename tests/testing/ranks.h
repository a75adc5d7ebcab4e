#pragma once
// Ranks as threads of the test: real gloo over loopback, with a store in memory.

#include <functional>

#include "distributed/activity.h"
#include "distributed/process_groups.h"

namespace trainer::testing {

// Calls `rank_main` in `world_size` threads, each with its rank's groups and one compute thread; `world_size` 1 uses sockets too.
// The first exception of any rank is thrown after all have ended; the groups of a rank that fails are aborted.
void run_ranks(int world_size, const std::function<void(distributed::ProcessGroups&)>& rank_main);

}  // namespace trainer::testing
