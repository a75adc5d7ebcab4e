#pragma once
// How far a run has come and what it has measured: what a checkpoint holds beside the parts, so that a continued run tells what a straight
// one would have told.

#include <optional>

#include "reporting/events.h"
#include "state/view.h"
#include "task/meters.h"

namespace trainer::engine {

struct Progress {
  int64_t epoch = 0;             // that is under way
  int64_t step = 0;              // updates attempted since the beginning of the run
  int64_t samples_seen = 0;      // since the beginning of the run
  int64_t samples_in_epoch = 0;  // of the order that all ranks share
  bool operator==(const Progress&) const = default;
};

// Sums over a time, with the time they took.
struct Interval {
  task::Measurement measured = {};
  double seconds = 0;
  double waited_seconds = 0;
  void add(const Interval& other);
};

struct RunState {
  Progress progress;
  Interval open;   // the logging interval under way; what it measured is in the meter
  Interval epoch;  // all intervals of the epoch so far
  Interval whole;  // of the run so far
  std::optional<reporting::ValidationEvent> last_validation;
  std::optional<reporting::ValidationEvent> best_validation;
};

// Adds epoch, step, samples_seen, samples_in_epoch, best, last_validation and meters. `sums`: of the open interval, by rank.
void write_run_state(const RunState& run, const torch::Tensor& sums, state::Dict& tree);
RunState read_run_state(const state::View& view);

}  // namespace trainer::engine
