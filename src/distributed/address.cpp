#include "distributed/address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace trainer::distributed {

std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "";
  std::string address;
  for (const addrinfo* target = found; target != nullptr && address.empty(); target = target->ai_next) {
    const int descriptor = socket(target->ai_family, target->ai_socktype | SOCK_CLOEXEC, target->ai_protocol);
    if (descriptor < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    auto* own_address = reinterpret_cast<sockaddr*>(&own);
    char text[NI_MAXHOST] = {};
    // Connecting a datagram socket only chooses the route.
    if (connect(descriptor, target->ai_addr, target->ai_addrlen) == 0 && getsockname(descriptor, own_address, &size) == 0 &&
        getnameinfo(own_address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      address = text;
    }
    close(descriptor);
  }
  freeaddrinfo(found);
  return address;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace trainer::distributed
