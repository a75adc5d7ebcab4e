#pragma once
// The progress and the measurements of a run. Checkpoints hold them, so that a resumed run reports the same as an uninterrupted one.

#include <chrono>
#include <cstdint>
#include <optional>

#include "train/engine/shared_batches.h"
#include "trainer/events.h"
#include "trainer/options.h"
#include "trainer/state.h"
#include "trainer/task.h"

namespace trainer::engine {

// Counts the consecutive validations without improvement, for training.early_stopping. The rule is that of Lightning's EarlyStopping.
struct EarlyStopping {
  std::optional<double> best = {};
  int64_t num_not_better = 0;

  // To be called after each validation with the value of the metric.
  void observe(double value, bool higher_is_better, double min_delta);
  bool is_over(const std::optional<EarlyStoppingOptions>& options) const;
};

state::Dict tree_of(const EarlyStopping& early_stopping);
EarlyStopping read_early_stopping(const state::View& view);

struct Progress {
  int64_t epoch = 0;             // the epoch of the next step, from 0
  int64_t step = 0;              // updates attempted since the start of the run
  int64_t samples_seen = 0;      // since the start of the run
  int64_t samples_in_epoch = 0;  // position in the order of samples that all ranks share
  bool operator==(const Progress&) const = default;
  // The epoch of the latest step; 0 before the first one.
  int64_t epoch_of_step() const { return samples_in_epoch == 0 && epoch > 0 ? epoch - 1 : epoch; }
};

// The measurements of a period of training, and its duration.
struct Interval {
  task::Measurement measured = {};
  double seconds = 0;
  double waited_seconds = 0;
  void add(const Interval& other);
};

// The time since the start of the training, with validations and checkpoints, without the time between the processes of a resumed run.
class RunClock {
 public:
  explicit RunClock(double seconds = 0) : seconds_before_(seconds) {}
  double seconds() const { return seconds_before_ + std::chrono::duration<double>(Clock::now() - started_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  double seconds_before_;
  Clock::time_point started_ = Clock::now();
};

struct RunState {
  Progress progress;
  Interval open;   // durations of the open logging interval; its measurements are in the meter
  Interval epoch;  // all intervals of the epoch so far
  Interval whole;  // of the run so far
  RunClock clock;
  std::optional<reporting::ValidationEvent> last_validation;
  std::optional<reporting::ValidationEvent> best_validation;
  EarlyStopping early_stopping;  // observed only with training.early_stopping
};

// Adds epoch, step, samples_seen, samples_in_epoch, best, last_validation, early_stopping and meters. `sums`: the meters of the open
// interval, one row for each rank.
void write_run_state(const RunState& run, const torch::Tensor& sums, state::Dict& tree);
RunState read_run_state(const state::View& view);

// Measures the duration of the open logging interval, and how long training waited for batches in it.
class IntervalClock {
 public:
  // `batches` must outlive this object.
  explicit IntervalClock(const BatchSource& batches) : batches_(batches) {}

  // Starts an interval at step number `step`; `so_far`: its durations before a resume or a validation.
  void begin(int64_t step, const Interval& so_far = {});
  // Whether the interval has a step before `next_step`.
  bool has_steps(int64_t next_step) const { return next_step > first_step_; }
  // Sets the durations of `interval`.
  void read(Interval& interval) const;
  // The mean number of batches that were ready when one was taken, since begin().
  double queue_depth() const;

 private:
  using Clock = std::chrono::steady_clock;

  const BatchSource& batches_;
  int64_t first_step_ = 0;
  Clock::time_point start_;
  data::LoaderCounts before_;  // the source's counts at begin(), less the time that the interval had already waited
};

}  // namespace trainer::engine
