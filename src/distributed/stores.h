#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "base/log.h"
#include "world/place.h"

namespace c10d {
class Store;
}

namespace trainer::distributed {

// The store at the meeting point, which rank 0 serves unless its launcher does; the other ranks wait up to `timeout` for it, and warn
// after some seconds that they do, and why. Throws PeerError when the port is taken, the host cannot be reached, what listens there is no
// store, or the file cannot be used.
c10::intrusive_ptr<c10d::Store> open_store(const world::Place& place, const world::MeetingPoint& point, std::chrono::milliseconds timeout,
                                           Logger& logger);

}  // namespace trainer::distributed
