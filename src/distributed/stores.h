#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "world/place.h"

namespace c10d {
class Store;
}

namespace trainer::distributed {

// The store at the meeting point, which rank 0 serves unless its launcher does; the other ranks wait up to `timeout` for it. Throws
// PeerError when the port is taken, the host cannot be reached or the file cannot be used.
c10::intrusive_ptr<c10d::Store> open_store(const world::Place& place, const world::MeetingPoint& point, std::chrono::milliseconds timeout);

}  // namespace trainer::distributed
