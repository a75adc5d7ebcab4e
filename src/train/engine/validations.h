#pragma once
// The validations of a run: when they are due, how a network is evaluated, and what depends on the results (the best validation, early
// stopping, and a learning rate that is reduced on a plateau).

#include <functional>
#include <optional>
#include <string>

#include "train/engine/parts.h"
#include "train/engine/run_state.h"
#include "trainer/events.h"
#include "trainer/options.h"
#include "trainer/task.h"

namespace trainer::engine {

class Validations {
 public:
  // All arguments must outlive this object. `stop_agreed` is collective and returns whether any rank has received a stop request.
  Validations(const LoopOptions& options, Parts& parts, RunState& run, reporting::Sink& reporter, std::function<bool()> stop_agreed);

  // The metric that chooses the best validation.
  const reporting::MetricInfo& monitored() const { return monitored_; }
  // Whether the model of the current step was validated.
  bool is_current() const;
  // Whether the end of the training still needs a validation, which a stop request may have prevented.
  bool is_missing_at_end() const { return !options_.is_off() && !is_current(); }
  // Whether validation.every_steps requires a validation after the current step; false after the last step of `part`, and if the current
  // step is validated already.
  bool is_due_within(const EpochPart& part) const;
  // Whether there is a validation after the last step of `part`.
  bool is_due_after(const EpochPart& part) const;
  // The estimated time of the validations from the current step, which is not validated yet, to the end of the training. Before the first
  // validation it is estimated from `seconds_per_sample`, the time of training.
  double seconds_left(const EpochPart& part, double seconds_per_sample) const;
  // Collective: validates and reports. Returns false after a stop request; in this case nothing has changed.
  bool validate(const EpochPart& part, bool is_within_epoch);

  // Whether training.early_stopping has ended the training.
  bool end_training() const { return run_.early_stopping.is_over(early_stopping_); }
  // Why training.early_stopping has ended the training; empty if it has not.
  std::string reason_of_end() const;
  // Why a run that has reached its end still counts as failed: no validation measured a finite value. Empty if it has not failed.
  std::string reason_of_failure() const;

 private:
  // The number of validations from the current step, which is not validated yet, to the end of the training.
  int64_t num_left(const EpochPart& part) const;
  // The best value of the monitored metric; empty: no validation has measured it.
  std::optional<double> best_value() const;

  const ValidationOptions& options_;
  const std::optional<EarlyStoppingOptions>& early_stopping_;
  Parts& parts_;
  RunState& run_;
  reporting::Sink& reporter_;
  std::function<bool()> stop_agreed_;
  reporting::MetricInfo monitored_;
};

// The validation metric that chooses the best checkpoint. Throws OptionError if the task does not measure it.
reporting::MetricInfo monitored_metric(const MonitorOptions& options, const task::Task& task);

// One validation.

struct Evaluation {
  task::Measurement model;
  std::optional<task::Measurement> ema;  // empty without averaged parameters
};

// Collective: the metrics of the model in eval mode, over every sample of `source` once. The batches are the same for any number of ranks,
// and each batch is evaluated by one rank, so the metrics are bitwise equal for any number of ranks. Outputs are averaged over the views of
// `tta`. Uses autocast if training does. Calls `should_stop`, which must return the same value on all ranks, before each round of batches,
// with the number of samples that have been evaluated; if it returns true, the result is nullopt. Calls `observe`, which may be empty, for
// each batch of this process that has samples, in the order of the samples; the memory of `targets` is then used for another batch. Leaves
// the model in train mode.
using StopEvaluation = std::function<bool(int64_t num_done)>;
using ObserveBatch = std::function<void(const torch::Tensor& outputs, const torch::Tensor& targets)>;
std::optional<task::Measurement> evaluate_model(Network& network, const Ranks& ranks, DataSource& source, task::TestTimeAugmentation tta,
                                                const StopEvaluation& should_stop, const ObserveBatch& observe = {});

// evaluate_model() over the validation set, with the model's parameters and, if there are any, with the averaged ones, whose samples count
// too.
std::optional<Evaluation> evaluate(Parts& parts, task::TestTimeAugmentation tta, const StopEvaluation& should_stop);

}  // namespace trainer::engine
