#pragma once
// Finds the addresses of this host.

#include <string>

#include "base/file.h"
#include "launch/world/rank_env.h"
#include "trainer/error.h"

namespace trainer::distributed {

// The numeric source address that this host uses for packets to `host`; empty if the name cannot be resolved or there is no route.
std::string address_towards(const std::string& host);

// "the name nod-1 cannot be resolved: ..."; empty if it can.
std::string resolution_problem(const std::string& host);

// `address`: numeric.
bool is_loopback(const std::string& address);

// Where rank 0's store listens.
struct Listener {
  Descriptor socket;  // bound to one address; if invalid, the caller must bind to all addresses of this host
  std::string host;   // the numeric address at which this host reaches the socket
};

// Binds the port of `point` to the address of its host name, so that the store can be reached only through the network of that address.
// Returns an invalid socket in three cases:
// - The name resolves to several addresses that are not all loopback addresses.
// - This host does not have the address (address translation).
// - Ranks on other hosts may join, but the name resolves to a loopback address, as a host's own name often does (/etc/hosts, Kubeflow's
//   MASTER_ADDR=localhost). A numeric loopback address is used as it is.
// Throws PeerError if the port is in use.
Listener bind_store(const world::RankEnv& rank_env, const world::RendezvousAddress& point);

// The error of rank 0 if another program already listens on the port.
PeerError port_in_use(const world::RendezvousAddress& point);

}  // namespace trainer::distributed
