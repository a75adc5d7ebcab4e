#pragma once
// A measurement by one or two processes that this program starts on its host. They connect and create process groups as in training.

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/error.h"

namespace trainer::doctor {

// What the processes measured over their process group.
struct Measurement {
  std::string problem = {};          // why there is no result; empty: the rest is set
  double latency = 0;                // seconds of an all_reduce of one number
  double seconds = 0;                // of an all_reduce of num_bytes
  int64_t num_bytes = 0;             // of each process
  double shared_memory_seconds = 0;  // of the same sum in shared memory, as for gradients on the CPU; 0: not measured
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Measurement, problem, latency, seconds, num_bytes, shared_memory_seconds)

// The options of `trainer doctor` with which measure() starts its processes.
inline constexpr const char* kMeasureOption = "--measure";
inline constexpr const char* kResultOption = "--result-descriptor";

// Starts `num_processes` processes, waits up to `limit` for the result of rank 0, and ends them. `backend`: "gloo", or "nccl" with one
// process per GPU.
Measurement measure(const std::string& backend, int num_processes, std::chrono::milliseconds limit);

// Runs in a process that measure() started: measures with the others and, on rank 0, writes the result to the descriptor. Collective.
// Throws Error.
ExitCode run_measurement(const std::string& backend, int result_descriptor);

}  // namespace trainer::doctor
