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

// This or another rank received a stop request before all ranks had joined. The exit code is not ExitCode::kStopped, because schedulers
// restart all ranks after that code: if one rank fails at its start, a scheduler stops the ranks that have joined, and would then restart
// the run forever.
struct StoppedDuringRendezvous : PeerError {
  // `state`: which ranks have not joined, or that rank 0 could not be reached.
  explicit StoppedDuringRendezvous(const std::string& state);
};

// Handles a stop request while a rank waits for others to join.
class RendezvousStop {
 public:
  // Call when the wait begins.
  explicit RendezvousStop(Logger& logger) : logger_(logger) {}

  // Whether this rank has received a stop request and must not wait any longer. In the first seconds it may still wait, and logs this once:
  // ranks that were started together join during this time and then stop as in training.
  bool is_due();

 private:
  Logger& logger_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  bool is_logged_ = false;
};

// Opens the store at the rendezvous address. Rank 0 serves it unless the launcher does. The other ranks wait up to `timeout` for the store,
// and log a warning with the reason after some seconds, or at once if an attempt fails immediately (for example because a name cannot be
// resolved yet); while attempts continue to fail immediately, the warning is repeated every 30 s. Throws StoppedDuringRendezvous, and
// PeerError if the port is in use, the host cannot be reached, the server is not a store, or the file cannot be used.
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

// Collective: calls `decide` on rank 0 and returns its result on all ranks. The other ranks wait slightly longer than `timeout`, and throw
// LateRank if there is still no decision. All ranks throw an Error of `decide` as AgreedError, with its text only on rank 0, so that it is
// reported once. Each rank must have set the key `key_of`(rank) before; this function uses keys with that prefix. The other ranks call
// `while_waiting` every second while they wait.
nlohmann::json share_decision(
    c10d::Store& store, const std::function<std::string(int rank)>& key_of, int rank, int world_size, std::chrono::milliseconds timeout,
    const std::function<nlohmann::json()>& decide, const std::function<void()>& while_waiting = [] {});

}  // namespace trainer::distributed
