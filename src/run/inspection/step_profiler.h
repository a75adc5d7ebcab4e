#pragma once
// logging.profile_steps: runs LibTorch's profiler during some steps.

#include <ATen/record_function.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/log.h"
#include "train/engine/train_step.h"

namespace trainer::inspection {

// Profiles the steps from number `first` to `last`, exclusive, counted from 0: operations of the training thread and of the backward pass,
// and GPU kernels if `uses_gpu`. Then writes `trace_file` in Chrome's format and logs a table of the ten most expensive operations. A
// resumed run profiles only those steps of this range that it trains itself. The profile includes what happens between the steps, such as a
// validation. If the file cannot be written, a warning is logged. The training's results do not change; only one profiler can be used at a
// time.
class StepProfiler final : public engine::TrainingHook {
 public:
  // `logger` must outlive this object.
  StepProfiler(int64_t first, int64_t last, bool uses_gpu, std::filesystem::path trace_file, Logger& logger);
  // Discards a profile that has begun if finish() was not called.
  ~StepProfiler() override;
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  void before_step(int64_t step) override;
  void after_step(int64_t step) override;
  // To be called by the same thread when the training has ended: writes the profile if the training has ended within the profiled steps,
  // and logs a message if it has ended before them.
  void finish();

 private:
  void begin(int64_t step);
  void write();

  int64_t first_;
  int64_t last_;
  bool uses_gpu_;
  std::filesystem::path trace_file_;
  Logger& logger_;
  bool is_profiling_ = false;
  bool is_before_first_ = false;             // whether the latest step is before step `first`
  int64_t begin_ = 0;                        // the first step of the profile
  int64_t end_ = 0;                          // one past the latest step of the profile
  std::string step_name_;                    // of range_
  std::optional<at::RecordFunction> range_;  // of the current step, in the trace
};

}  // namespace trainer::inspection
