#pragma once
// What the network of a host, and what two processes have measured, mean for training. Functions of their arguments alone.

#include <optional>
#include <string>
#include <vector>

#include "commands/doctor/finding.h"
#include "commands/doctor/measure.h"

namespace trainer::doctor {

// `addresses`: numeric, that the name stands for; empty: it is not known.
Finding judge_host_name(const std::string& name, const std::vector<std::string>& addresses);

struct Interface {
  std::string name;
  std::string address;  // numeric
  bool is_loopback = false;
};
struct Network {
  std::vector<Interface> interfaces;  // that are up, one entry per address
  std::string chosen_interface;       // GLOO_SOCKET_IFNAME; empty: not set
  std::string master_addr;            // MASTER_ADDR; empty: not set
  std::string source;  // the address from which this host reaches MASTER_ADDR or, without it, other networks; empty: no route
};
Finding judge_network(const Network& network);

Finding judge_gloo(const Measurement& measurement);
Finding judge_shared_sums(const Measurement& measurement);
// `num_gpus`: that took part.
Finding judge_nccl(const Measurement& measurement, int num_gpus);

}  // namespace trainer::doctor
