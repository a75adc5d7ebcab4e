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

// Waiting time until the missing ranks are first reported.
constexpr std::chrono::milliseconds kFirstWaitReport{5000};

// This or another rank was asked to stop before all had joined. The exit code is not ExitCode::kStopped, after which schedulers restart all
// ranks: schedulers also stop the ranks that have joined when another has failed, and would restart them forever.
struct StoppedDuringRendezvous : PeerError {
  // `state`: what is waited for.
  explicit StoppedDuringRendezvous(const std::string& state);
};

// A stop request while a rank waits for others to join.
class RendezvousStop {
 public:
  // The wait begins.
  explicit RendezvousStop(Logger& logger) : logger_(logger) {}

  // Whether this rank was asked to stop and may not wait any longer. In the first seconds it may, and says so once: ranks that were started
  // together join then, and stop as in training.
  bool is_due();

 private:
  Logger& logger_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  bool is_logged_ = false;
};

// The store at the rendezvous address, which rank 0 serves unless its launcher does. The other ranks wait up to `timeout` for it, and log a
// warning with the reason after some seconds, or at once and every 30 s while each attempt fails at once, as with a name that cannot be
// resolved yet. Throws PeerError when the port is in use, the host cannot be reached, the listener is not a store, or the file cannot be
// used, and StoppedDuringRendezvous.
c10::intrusive_ptr<c10d::Store> open_store(const world::RankEnv& rank_env, const world::RendezvousAddress& point,
                                           std::chrono::milliseconds timeout, RendezvousStop& stop, Logger& logger);

}  // namespace trainer::distributed

namespace c10d {

// JSON through a store, and a decision of rank 0 for all ranks.
class Store;
}  // namespace c10d

namespace trainer::distributed {

std::vector<uint8_t> to_bytes(const nlohmann::json& json);
nlohmann::json from_bytes(const std::vector<uint8_t>& bytes);

// Whether the key exists within `timeout`.
bool wait_for(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout);

// Another rank has not done its part of the start-up in time.
struct LateRank : PeerError {
  LateRank(int late_rank, std::chrono::milliseconds waited_for);
  int rank;
  std::chrono::milliseconds waited;
};

// Collective: calls `decide` on rank 0 and returns its result on all ranks; the others wait slightly longer than `timeout`, and throw
// LateRank if there is no decision then. An Error that `decide` throws is thrown on all ranks, with its text only on rank 0, so that it is
// reported once. Every rank that has joined has set its `key_of`(rank) before; further keys have it as prefix. `while_waiting` is called
// every second on the other ranks.
nlohmann::json share_decision(
    c10d::Store& store, const std::function<std::string(int rank)>& key_of, int rank, int world_size, std::chrono::milliseconds timeout,
    const std::function<nlohmann::json()>& decide, const std::function<void()>& while_waiting = [] {});

}  // namespace trainer::distributed
