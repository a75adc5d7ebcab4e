#pragma once
// The addresses of this host.

#include <string>

#include "base/file.h"
#include "launch/world/rank_env.h"
#include "trainer/error.h"

namespace trainer::distributed {

// The numeric address of this host that is the source of packets to `host`; empty when there is no route to it. Sends nothing.
std::string address_towards(const std::string& host);

// Why the name cannot be resolved now ("the name nod-1 cannot be resolved: ..."); empty: it can.
std::string resolution_problem(const std::string& host);

// Of a numeric address.
bool is_loopback(const std::string& address);

// Where rank 0's store listens.
struct Listener {
  Descriptor socket;  // bound to that one address; none: to be bound to all addresses of this host
  std::string host;   // the numeric address by which this host reaches it
};

// Binds the port of `point` to the address that its host stands for, so that only networks that lead to it reach the store. To all
// addresses if that is not one address of this host (a name with several, a translated address), or if it is the loopback address under a
// name while ranks of other hosts may join: hosts often call themselves so (/etc/hosts, Kubeflow's MASTER_ADDR=localhost). Throws PeerError
// if the port is in use.
Listener bind_store(const world::RankEnv& rank_env, const world::RendezvousAddress& point);

// The error of rank 0 when another program listens at the port.
PeerError port_in_use(const world::RendezvousAddress& point);

}  // namespace trainer::distributed
