#pragma once
// What the ranks send each other through the store, and what rank 0 makes of it.

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "distributed/activity.h"

namespace trainer::supervision {

using Clock = std::chrono::steady_clock;

// That a rank lives, and what it does.
struct Heartbeat {
  distributed::ActivityState state = {};
  uint64_t number = 0;  // how many this rank has sent; 0: none yet
};

void to_json(nlohmann::json& json, const Heartbeat& heartbeat);
void from_json(const nlohmann::json& json, Heartbeat& heartbeat);

// The heartbeats of all ranks in a few numbers, so that what a rank reads does not grow with the number of ranks. Durations are by the
// clock of rank 0.
struct Digest {
  struct Longest {
    int rank = -1;  // -1: no such rank
    std::chrono::milliseconds duration{0};
  };
  uint64_t number = 0;                    // how many rank 0 has published; 0: none yet
  distributed::ActivityState rank0 = {};  // what rank 0 does
  Longest silent = {};                    // since whose last heartbeat most time has passed; never rank 0
  // Of the ranks that send heartbeats and wait for no other one: whose work has made no progress for longest.
  Longest stuck = {};
  // For how long no rank has made progress while all of them wait for others. 0: they do not.
  std::chrono::milliseconds all_wait{0};
};

void to_json(nlohmann::json& json, const Digest& digest);
void from_json(const nlohmann::json& json, Digest& digest);

// Rank 0's record of when the heartbeats of each rank changed. Not thread-safe.
class HeartbeatLog {
 public:
  // A rank without a new heartbeat for `silence_limit` counts neither as stuck nor as waiting.
  HeartbeatLog(int num_ranks, Clock::duration silence_limit, Clock::time_point now);

  // `heartbeats`: the newest one of each rank, by rank, as they were read at `now`; that of rank 0 is new at each call.
  Digest digest(const std::vector<Heartbeat>& heartbeats, Clock::time_point now);

 private:
  struct Rank {
    Heartbeat newest;
    Clock::time_point last_heartbeat;
    Clock::time_point last_change;
  };

  const Clock::duration silence_limit_;
  std::vector<Rank> ranks_;
  uint64_t num_digests_ = 0;
};

}  // namespace trainer::supervision
