#pragma once
// The heartbeats that the ranks write to the store, and the digest that rank 0 computes from them.

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "distributed/activity.h"
#include "distributed/supervision/failure.h"

template <>
struct nlohmann::adl_serializer<std::chrono::milliseconds> {
  static void to_json(json& value, std::chrono::milliseconds duration) { value = duration.count(); }
  static void from_json(const json& value, std::chrono::milliseconds& duration) {
    duration = std::chrono::milliseconds(value.get<int64_t>());
  }
};

namespace trainer::supervision {

using Clock = std::chrono::steady_clock;

// Shows that a rank is alive, and what it is doing.
struct Heartbeat {
  distributed::ActivityState state = {};
  uint64_t number = 0;  // number of heartbeats that this rank has sent
};

// A summary of the heartbeats of all ranks, by the clock of rank 0. Its size does not grow with the number of ranks.
struct Digest {
  struct Longest {
    int rank = -1;  // -1: no such rank
    std::chrono::milliseconds duration{0};
  };
  uint64_t number = 0;                    // number of digests that rank 0 has published
  distributed::ActivityState rank0 = {};  // what rank 0 is doing
  Longest silent = {};                    // the rank with the longest time without a heartbeat; never rank 0
  // The longest time without progress among the ranks that send heartbeats and do not wait for other ranks.
  Longest stuck = {};
  // How long no rank has made progress while all ranks wait for other ranks; 0 if not all ranks wait.
  std::chrono::milliseconds all_wait{0};
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Heartbeat, state, number)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Digest::Longest, rank, duration)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Digest, number, rank0, silent, stuck, all_wait)

// What a rank currently knows about the other ranks.
struct Knowledge {
  Digest digest = {};
  Clock::time_point last_digest = {};  // when a new digest was last read
  Clock::time_point last_answer = {};  // when the store last answered
  bool has_lost_connection = false;
};

struct DiagnosisLimits {
  int rank = 0;
  int num_ranks = 1;
  bool rank0_serves_store = true;  // the store ends with rank 0
  Clock::duration hang = {};       // longest time without progress, or without an answer
  Clock::duration missed = {};     // a rank without a heartbeat for longer than this has missed several heartbeats
};

struct Diagnosis {
  Failure::Kind kind = Failure::Kind::kSilent;
  int rank = 0;
  Clock::duration duration = {};
};

std::optional<Diagnosis> diagnose(const Knowledge& knowledge, const DiagnosisLimits& limits, Clock::time_point now);

// Rank 0's record of when the heartbeats of each rank changed. Not thread-safe.
class HeartbeatLog {
 public:
  // A rank without a new heartbeat for `silence_limit` counts as neither stuck nor waiting.
  HeartbeatLog(int num_ranks, Clock::duration silence_limit, Clock::time_point now);

  // `heartbeats`: the newest heartbeat of each rank, by rank, as read at `now`. The heartbeat of rank 0 must be new in each call.
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
