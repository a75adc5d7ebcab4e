#pragma once
// This host's addresses, as the way to another host shows them.

#include <string>

namespace trainer::distributed {

// The numeric address of this host from which packets to `host` leave; empty when there is no way to it. Nothing is sent.
std::string address_towards(const std::string& host);

bool is_loopback(const std::string& address);

}  // namespace trainer::distributed
