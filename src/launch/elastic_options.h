#pragma once
// The values of the launcher's options --nnodes and --rdzv-conf, which torchrun has too.

#include <chrono>
#include <string>

#include "launch/line_socket.h"

namespace trainer::launch {

struct NumNodes {
  int min = 1, max = 1;
  bool is_elastic = false;  // MIN:MAX, even if both are the same
};
// "4" or "2:4". Throws UsageError.
NumNodes parse_num_nodes(const std::string& text);

struct RendezvousTimes {
  std::chrono::seconds last_call_timeout{30};
  std::chrono::seconds join_timeout{600};
  KeepAlive keep_alive;
};
// "last_call_timeout=10,keep_alive_interval=2"; what is not named keeps its default. Throws UsageError.
RendezvousTimes parse_rendezvous_times(const std::string& text);

}  // namespace trainer::launch
