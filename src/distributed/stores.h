#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

#include "base/log.h"
#include "trainer/error.h"
#include "world/rank_env.h"

namespace c10d {
class Store;
}

namespace trainer::distributed {

// Waiting time until the missing ranks are first reported.
constexpr std::chrono::milliseconds kFirstWaitReport{5000};

// This or another rank was asked to stop before all had joined. The exit code is not ExitCode::kStopped, after which schedulers restart all
// ranks: schedulers also stop the ranks that have joined when another has failed, and would restart them forever.
struct StoppedWhileMeeting : PeerError {
  // `state`: what is waited for.
  explicit StoppedWhileMeeting(const std::string& state);
};

// A stop request while a rank waits for others to join.
class MeetingStop {
 public:
  // The wait begins.
  explicit MeetingStop(Logger& logger) : logger_(logger) {}

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
// used, and StoppedWhileMeeting.
c10::intrusive_ptr<c10d::Store> open_store(const world::RankEnv& rank_env, const world::RendezvousAddress& point,
                                           std::chrono::milliseconds timeout, MeetingStop& stop, Logger& logger);

}  // namespace trainer::distributed
