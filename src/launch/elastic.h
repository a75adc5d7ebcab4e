#pragma once
// The launcher of one host of an elastic run (--nnodes MIN:MAX): the launchers meet, start their processes together, and meet again when a
// host is lost, a rank fails or a host joins. docs/design.md describes how.

#include <functional>
#include <string>

#include "launch/launcher.h"
#include "launch/line_socket.h"
#include "launch/membership.h"

namespace trainer::launch {

struct ElasticOptions {
  MembershipLimits limits;
  KeepAlive keep_alive;
  int node = 0;             // --node-rank; the launcher of node 0 holds the meeting
  std::string master_addr;  // where it listens
  int master_port = 0;
  int num_processes = 1;  // on each host
};

// Makes the processes of an attempt. `listen_descriptor`: a socket that is bound to order.port, for rank 0; -1 on other nodes.
using MakeProcesses = std::function<Processes(const Order& start, int listen_descriptor)>;

// Returns the outcome of the last attempt of this host; after the end of the run on another host, while none of the own processes runs, the
// exit code of that. Throws PeerError (the port is taken, or node 0 does not answer for limits.join_timeout)
// and UsageError (another launcher has the same node number).
Outcome run_elastic(const ElasticOptions& options, const MakeProcesses& make_processes, Logger& logger);

}  // namespace trainer::launch
