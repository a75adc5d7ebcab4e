#pragma once
// The one door to c10d's gloo backend, whose header needs gloo's.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainer::distributed {

// Listens on the network interface of that name or, where it is empty, on `address` (a name or number of this host). Collective.
// Throws UsageError when this host has neither.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    const std::string& interface, const std::string& address,
                                                    std::chrono::milliseconds timeout);

}  // namespace trainer::distributed
