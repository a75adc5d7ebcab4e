#pragma once
// How the processes of a run find each other.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/log.h"
#include "distributed/rank_info.h"
#include "distributed/startup_barrier.h"
#include "world/rank_env.h"

namespace c10d {
class Store;
}

namespace trainer::distributed {

// What a rank sends the others when they meet.
struct Introduction {
  RankInfo rank;        // its place and address are filled in by meet()
  std::string version;  // of the program and of LibTorch: all ranks run the same
  std::string config;   // the resolved file: the same on all ranks
  Problem problem;      // why this rank cannot go on
  int world_size = 0;   // as its launcher says: the same on all ranks; filled in by meet()
};

struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;  // shared by all ranks, with a prefix for this attempt
  std::vector<RankInfo> ranks;            // by rank
  std::string address;                    // of this rank, for gloo to listen on
  // As the launcher says; counted from the hosts of all ranks where two ranks of one host would be the same.
  int local_rank = 0;
  int local_world_size = 1;
  int num_sharing_cpus = 1;  // ranks of this host that may use the same cores as this one, itself included
};

// Collective; not for a run of one process. Waits up to `timeout` for ranks that are late, and says on rank 0 for whom. Throws
// StoppedWhileMeeting, also when another rank is asked to stop, PeerError naming the ranks that did not come, a rank that came twice, a
// port that is taken or a host that cannot be reached, and UsageError when two ranks differ in version or configuration (with the
// difference) or have a problem. What rank 0 finds is thrown on all ranks, with its text on rank 0 and without text on the others, so that
// it is said once.
Meeting meet(const world::RankEnv& rank_env, const world::MeetingPoint& point, const Introduction& introduction,
             std::chrono::milliseconds timeout, Logger& logger);

}  // namespace trainer::distributed
