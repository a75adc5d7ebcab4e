#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace trainer::doctor {

// What processes of this host have measured together over the process groups of training.
struct Measurement {
  std::string problem = {};          // why there is no result; empty: the rest is set
  double latency = 0;                // seconds of an all_reduce of one number
  double seconds = 0;                // of an all_reduce of num_bytes
  int64_t num_bytes = 0;             // of each process
  double shared_memory_seconds = 0;  // of the same sum in shared memory, as of gradients on the CPU; 0: there is none
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Measurement, problem, latency, seconds, num_bytes, shared_memory_seconds)

}  // namespace trainer::doctor
