#pragma once
// Makes c10d's gloo backend. c10d's header of that backend needs gloo's headers, so only gloo.cpp includes it.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainer::distributed {

// Collective. Listens on the network interface `interface` or, if that is empty, on `address` of this host. Throws UsageError if this host
// does not have it, and PeerError if the ranks cannot connect.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    const std::string& interface, const std::string& address,
                                                    std::chrono::milliseconds timeout);

}  // namespace trainer::distributed
