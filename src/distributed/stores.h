#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/log.h"
#include "launch/world/rank_env.h"
#include "trainer/error.h"

namespace c10d {
class Store;
}

namespace trainer::distributed {

// Time until the missing ranks are first reported.
constexpr std::chrono::milliseconds kFirstWaitReport{5000};

// This or another rank received a stop request before all ranks had joined. The exit code is not kStopped: if one rank fails at its start,
// a scheduler stops those that have joined, and after that code it would restart the run forever.
struct StoppedDuringRendezvous : PeerError {
  // `state`: which ranks have not joined, or that rank 0 could not be reached.
  explicit StoppedDuringRendezvous(const std::string& state);
};

// Handles a stop request while a rank waits for others to join.
class RendezvousStop {
 public:
  explicit RendezvousStop(Logger& logger) : logger_(logger) {}

  // Whether this rank has received a stop request and must not wait any longer. In the first seconds it still waits, and logs this once:
  // ranks that were started together join during this time and then stop as in training.
  bool is_due();

 private:
  Logger& logger_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  bool is_logged_ = false;
};

// Opens the store at the rendezvous address. Rank 0 serves it unless the launcher does. The other ranks wait up to `timeout` for it, and
// log why. Throws StoppedDuringRendezvous and PeerError.
c10::intrusive_ptr<c10d::Store> open_store(const world::RankEnv& rank_env, const world::RendezvousAddress& point,
                                           std::chrono::milliseconds timeout, RendezvousStop& stop, Logger& logger);

// Exchange of JSON through a store, and decisions that rank 0 makes for all ranks.

std::vector<uint8_t> to_bytes(const nlohmann::json& json);
nlohmann::json from_bytes(const std::vector<uint8_t>& bytes);

// Waits up to `timeout` for the key; returns whether it exists.
bool wait_for(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout);

// Another rank has not finished its part of the start-up in time.
struct LateRank : PeerError {
  LateRank(int late_rank, std::chrono::milliseconds waited_for);
  int rank;
  std::chrono::milliseconds waited;
};

// Collective: calls `decide` on rank 0 and returns its result on all ranks. All ranks throw an Error of `decide` as AgreedError, with its
// text only on rank 0. The others wait slightly longer than `timeout`, call `while_waiting` every second, and throw LateRank in the end.
// Each rank must have set the key `key_of`(rank) before; this function uses keys with that prefix.
nlohmann::json share_decision(
    c10d::Store& store, const std::function<std::string(int rank)>& key_of, int rank, int world_size, std::chrono::milliseconds timeout,
    const std::function<nlohmann::json()>& decide, const std::function<void()>& while_waiting = [] {});

}  // namespace trainer::distributed
