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

// After which it is first said who is waited for.
constexpr std::chrono::milliseconds kFirstWaitReport{5000};

// A request to stop came, and after some seconds not all ranks are there yet. It is no ExitCode::kStopped, after which schedulers start all
// again: they also ask the ranks that are there to stop when another has failed, and would do so for ever.
struct StoppedWhileMeeting : PeerError {
  StoppedWhileMeeting() : PeerError("stopped on request before all ranks were there") {}
};
// Whether that is so for this rank.
bool must_stop_meeting();

// The store at the meeting point, which rank 0 serves unless its launcher does; the other ranks wait up to `timeout` for it, and warn
// after some seconds that they do, and why. Throws PeerError when the port is taken, the host cannot be reached, what listens there is no
// store, or the file cannot be used, and StoppedWhileMeeting.
c10::intrusive_ptr<c10d::Store> open_store(const world::RankEnv& rank_env, const world::MeetingPoint& point,
                                           std::chrono::milliseconds timeout, Logger& logger);

}  // namespace trainer::distributed
