#pragma once
// The progress and the measurements of a run. Checkpoints hold them, so that a resumed run reports the same as an uninterrupted one.

#include <optional>

#include "engine/early_stopping.h"
#include "trainer/events.h"
#include "trainer/state.h"
#include "trainer/task.h"

namespace trainer::engine {

struct Progress {
  int64_t epoch = 0;             // from 0: the one of the next step
  int64_t step = 0;              // updates attempted since the start of the run
  int64_t samples_seen = 0;      // since the start of the run
  int64_t samples_in_epoch = 0;  // position in the order that all ranks share
  bool operator==(const Progress&) const = default;
  // The epoch of the latest step; 0 before the first one.
  int64_t epoch_of_step() const { return samples_in_epoch == 0 && epoch > 0 ? epoch - 1 : epoch; }
};

// Measurements of a time, and its duration.
struct Interval {
  task::Measurement measured = {};
  double seconds = 0;
  double waited_seconds = 0;
  void add(const Interval& other);
};

struct RunState {
  Progress progress;
  Interval open;   // the open logging interval: its durations; its measurements are in the meter
  Interval epoch;  // all intervals of the epoch so far
  Interval whole;  // of the run so far
  std::optional<reporting::ValidationEvent> last_validation;
  std::optional<reporting::ValidationEvent> best_validation;
  EarlyStopping early_stopping;  // observed only with training.early_stopping
};

// Adds epoch, step, samples_seen, samples_in_epoch, best, last_validation, early_stopping and meters. `sums`: of the open interval, by
// rank.
void write_run_state(const RunState& run, const torch::Tensor& sums, state::Dict& tree);
RunState read_run_state(const state::View& view);

}  // namespace trainer::engine
