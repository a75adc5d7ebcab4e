#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "world/rank_env.h"

namespace c10d {
class Store;
}

namespace trainer::distributed {

// Waiting time until the missing ranks are first reported.
constexpr std::chrono::milliseconds kFirstWaitReport{5000};

// A stop was requested, and some seconds later not all ranks have joined. The exit code is not ExitCode::kStopped, after which schedulers
// restart all ranks: schedulers also stop the ranks that have joined when another has failed, and would restart them forever.
struct StoppedWhileMeeting : PeerError {
  StoppedWhileMeeting() : PeerError("stopped on request before all ranks had joined") {}
};
// Whether this rank must throw StoppedWhileMeeting.
bool must_stop_meeting();

// The store at the rendezvous address, which rank 0 serves unless its launcher does. The other ranks wait up to `timeout` for it, and log a
// warning with the reason after some seconds. Throws PeerError when the port is in use, the host cannot be reached, the listener is not a
// store, or the file cannot be used, and StoppedWhileMeeting.
c10::intrusive_ptr<c10d::Store> open_store(const world::RankEnv& rank_env, const world::RendezvousAddress& point,
                                           std::chrono::milliseconds timeout, Logger& logger);

}  // namespace trainer::distributed
