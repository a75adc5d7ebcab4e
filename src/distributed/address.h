#pragma once
// This host's addresses, found by the route to another host.

#include <string>

namespace trainer::distributed {

// The numeric address of this host that is the source of packets to `host`; empty when there is no route to it. Sends nothing.
std::string address_towards(const std::string& host);

bool is_loopback(const std::string& address);

}  // namespace trainer::distributed
