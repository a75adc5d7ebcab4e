#pragma once
// A measurement by two processes that this program starts on its host: they meet, and make their process groups, as in training.

#include <chrono>
#include <string>

#include "commands/doctor/measurement.h"
#include "trainer/error.h"

namespace trainer::doctor {

// The options of `trainer doctor` by which such a process is started.
inline constexpr const char* kMeasureOption = "--measure";
inline constexpr const char* kResultOption = "--result-descriptor";

// `backend`: "gloo", or "nccl" with one process per GPU, of `num_processes`. Starts the processes, waits up to `limit` for the result of
// the first one, and ends them.
Measurement measure(const std::string& backend, int num_processes, std::chrono::milliseconds limit);

// In such a process: measures with the others, and writes the result to the descriptor if it is rank 0. Collective. Throws Error.
ExitCode run_measurement(const std::string& backend, int result_descriptor);

}  // namespace trainer::doctor
