#include "distributed/gloo.h"

#include <fmt/format.h>

// LibTorch was built with this macro; without it c10d's gloo header is empty.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "distributed/first_line.h"
#include "trainer/error.h"

namespace trainer::distributed {

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    const std::string& interface, const std::string& address,
                                                    std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  try {
    options->devices.push_back(interface.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(address)
                                                 : c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  } catch (const std::exception& error) {
    throw UsageError(
        interface.empty()
            ? fmt::format("gloo cannot listen on {}: {}; set GLOO_SOCKET_IFNAME to an interface that `ip address` lists", address,
                          first_line(error))
            : fmt::format("GLOO_SOCKET_IFNAME={}: {}; set it to an interface that `ip address` lists", interface, first_line(error)));
  }
  try {
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  } catch (const std::exception& error) {
    throw PeerError(
        fmt::format("rank {} cannot connect to the other ranks over gloo from {}: {}; set GLOO_SOCKET_IFNAME to an interface "
                    "that all hosts can reach",
                    rank, interface.empty() ? address : interface, first_line(error)));
  }
}

}  // namespace trainer::distributed
