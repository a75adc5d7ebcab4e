#include "distributed/addresses.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <set>

namespace trainer::distributed {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr int kAnyPort = 9;

// Returns null if the host cannot be resolved; `error` then receives the result of getaddrinfo().
Addresses resolve(const std::string& host, int port, int socket_type, int* error = nullptr) {
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (result != 0) found = nullptr;
  if (error != nullptr) *error = result;
  return {found, &freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

std::string numeric(const addrinfo& address) { return numeric(address.ai_addr, address.ai_addrlen); }

// The address to listen on; null if rank 0 must listen on all addresses.
const addrinfo* choose_address(const addrinfo* found, const world::RankEnv& rank_env, const std::string& host) {
  std::set<std::string> texts;
  bool all_loopback = true;
  const addrinfo* first_ipv4 = nullptr;
  for (const auto* address = found; address != nullptr; address = address->ai_next) {
    texts.insert(numeric(*address));
    all_loopback = all_loopback && is_loopback(numeric(*address));
    if (first_ipv4 == nullptr && address->ai_family == AF_INET) first_ipv4 = address;
  }
  if (texts.empty()) return nullptr;
  if (!all_loopback) return texts.size() == 1 ? found : nullptr;
  const bool is_local = rank_env.local_world_size == rank_env.world_size || texts.contains(host);
  if (!is_local) return nullptr;
  return first_ipv4 != nullptr ? first_ipv4 : found;
}

}  // namespace

std::string address_towards(const std::string& host) {
  const auto found = resolve(host, kAnyPort, SOCK_DGRAM);
  for (const addrinfo* target = found.get(); target != nullptr; target = target->ai_next) {
    const Descriptor descriptor(socket(target->ai_family, target->ai_socktype | SOCK_CLOEXEC, target->ai_protocol));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    auto* own_address = reinterpret_cast<sockaddr*>(&own);
    // Connecting a datagram socket sends nothing; it only selects the route.
    if (connect(descriptor.number(), target->ai_addr, target->ai_addrlen) != 0) continue;
    if (getsockname(descriptor.number(), own_address, &size) != 0) continue;
    if (auto address = numeric(own_address, size); !address.empty()) return address;
  }
  return "";
}

std::string resolution_problem(const std::string& host) {
  int error = 0;
  if (resolve(host, kAnyPort, SOCK_STREAM, &error)) return "";
  return fmt::format("the name {} cannot be resolved: {}", host, gai_strerror(error));
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

PeerError port_in_use(const world::RendezvousAddress& point) {
  return PeerError(
      fmt::format("rank 0 cannot listen on port {} ({}), because another program uses it (perhaps a second run on this host); set a "
                  "different port with MASTER_PORT or --init-method",
                  point.port, point.port_source));
}

Listener bind_store(const world::RankEnv& rank_env, const world::RendezvousAddress& point) {
  Listener everywhere{Descriptor(), "127.0.0.1"};
  const auto found = resolve(point.host, point.port, SOCK_STREAM);
  const auto* address = choose_address(found.get(), rank_env, point.host);
  if (address == nullptr) return everywhere;
  Descriptor descriptor(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Without this option, bind() fails while connections of the previous run are still closing.
  const int yes = 1;
  setsockopt(descriptor.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(descriptor.number(), address->ai_addr, address->ai_addrlen) == 0) return {std::move(descriptor), numeric(*address)};
  if (errno != EADDRINUSE) return everywhere;
  throw port_in_use(point);
}

}  // namespace trainer::distributed
