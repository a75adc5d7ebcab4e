#pragma once
// A measurement by two processes that this program starts on its host. They connect and create process groups as in training.

#include <cstdint>
#include <string>

#include "trainer/error.h"

namespace trainer::doctor {

inline constexpr int64_t kMeasuredBytes = int64_t{16} << 20;

// What the processes measured over their process group.
struct Measurement {
  std::string problem = {};  // why there is no result; empty: the rest is set
  double latency = 0;        // seconds of an all_reduce of one number
  double seconds = 0;        // of an all_reduce of kMeasuredBytes of each process
};

// The option of `trainer doctor` with which measure() starts its processes.
inline constexpr const char* kMeasureOption = "--measure";

// Starts two processes with `trainer launch` and waits for their end; they end with this process. `backend`: "gloo", or "nccl" with one GPU
// for each process.
Measurement measure(const std::string& backend);

// Runs in a process that measure() started: measures with the other one and, on rank 0, writes the result to stderr. Collective. Throws
// Error.
ExitCode run_measurement(const std::string& backend);

}  // namespace trainer::doctor
