#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

#include "commands/doctor/read_host.h"
#include "distributed/addresses.h"
#include "launch/world/rank_env.h"

namespace trainer::doctor {
namespace {

// Empty for addresses of other families.
std::string numeric(const sockaddr* address) {
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) return "";
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = {};
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

}  // namespace

std::vector<std::string> read_addresses(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<std::string> addresses;
  for (; found != nullptr; found = found->ai_next) addresses.push_back(numeric(found->ai_addr));
  return addresses;
}

Network read_network() {
  const auto environment = world::process_environment();
  Network network;
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, &freeifaddrs);
    for (; found != nullptr; found = found->ifa_next) {
      const auto address = numeric(found->ifa_addr);
      if ((found->ifa_flags & IFF_UP) == 0 || address.empty()) continue;
      network.interfaces.push_back({found->ifa_name, address, (found->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  network.chosen_interface = environment("GLOO_SOCKET_IFNAME").value_or("");
  network.master_addr = environment("MASTER_ADDR").value_or("");
  // An address that is kept for documentation: every host has it behind its default route.
  constexpr const char* kOtherNetwork = "192.0.2.1";
  network.source = distributed::address_towards(network.master_addr.empty() ? kOtherNetwork : network.master_addr);
  return network;
}

}  // namespace trainer::doctor
