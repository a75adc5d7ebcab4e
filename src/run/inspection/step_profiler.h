#pragma once
// logging.profile_steps: LibTorch's profiler for some steps of a run.

#include <ATen/record_function.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/log.h"
#include "train/engine/train_step.h"

namespace trainer::inspection {

// Profiles the steps from number `first` to `last`, exclusive, counted from 0: operations of the thread that trains and of the backward
// pass, and kernels with `uses_gpu`. Then it writes `trace_file` in Chrome's format and logs a table of the ten dearest operations. A
// resumed run profiles the steps that it has yet to take. What comes between these steps, such as a validation, is in the profile too. If
// the file cannot be written, it logs a warning. The training's results stay the same; only one profiler can be used at a time.
class StepProfiler final : public engine::TrainingHook {
 public:
  // `logger` must outlive it.
  StepProfiler(int64_t first, int64_t last, bool uses_gpu, std::filesystem::path trace_file, Logger& logger);
  // Without finish(), a profile that has begun is lost.
  ~StepProfiler() override;
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  void before_step(int64_t step) override;
  void after_step(int64_t step) override;
  // To be called when the training has ended, by the same thread: writes the profile if the training has ended within these steps, and
  // logs if it has ended before them.
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
  int64_t end_ = 0;                          // after its latest step
  std::string step_name_;                    // of range_
  std::optional<at::RecordFunction> range_;  // of the current step, in the trace
};

}  // namespace trainer::inspection
