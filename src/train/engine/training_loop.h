#pragma once
// The training loop.

#include <chrono>
#include <functional>
#include <optional>

#include "distributed/agreement.h"
#include "distributed/supervision/straggler.h"
#include "train/engine/checkpoints.h"
#include "train/engine/non_finite.h"
#include "train/engine/parts.h"
#include "train/engine/run_state.h"
#include "train/engine/train_step.h"
#include "train/engine/validations.h"
#include "trainer/events.h"
#include "trainer/options.h"

namespace trainer::engine {

// Functions from outside the engine, on the rank that writes files; each may be empty.
struct RunCallbacks {
  Checkpoints::Target checkpoints = {};
  NonFiniteSteps::Save non_finite_step = {};
  // Returns the text of a warning after an epoch (`number`, from 0) that waited for data; empty: no warning.
  std::function<std::string(const Interval& epoch, int64_t number)> advise_on_data = {};
};

class TrainingLoop {
 public:
  // `parts` and `reporter` must outlive this object. `should_stop` is called at every step and validation batch; if it returns true on any
  // rank, all ranks stop.
  TrainingLoop(LoopOptions options, Parts& parts, reporting::Sink& reporter, std::function<bool()> should_stop,
               RunCallbacks callbacks = {});

  // Resumes from this checkpoint, which was read from `file`. To be called before run(), on each rank with the same tree. Throws
  // CheckpointError.
  void resume(const state::Tree& checkpoint, const std::string& file);

  // The part of an epoch that is being trained.
  const EpochPart& part() const { return part_; }

  // To be called before run(). `hook` must outlive the loop; hooks are called at each step in the order in which they were added.
  void add_hook(TrainingHook& hook) { hooks_.push_back(&hook); }

  // Collective. Trains to the end and returns true, or until a stop request and returns false; saves the run in both cases. Throws Error
  // when no validation has measured a finite value of the monitored metric, when a non-finite step ends the run (the message names the
  // step, its learning rate and the first non-finite value), when memory runs out (the message names the batch size) or when the last
  // checkpoint cannot be written (on the other ranks an AgreedError with rank 0 and its reason). Reports the end in every case.
  bool run();

 private:
  void start();
  bool run_epochs();
  // Collective: whether any rank has received a stop request.
  bool stop_agreed();
  // Whether all steps have been trained and the last validation is done.
  bool has_trained_all() const;
  // Trains one epoch, or the rest of one, and validates. Returns false after a stop request.
  bool run_epoch();
  // Trains the steps of part_, or until training.early_stopping ends the training. Returns false after a stop request.
  bool train();
  void take_step(int64_t step);
  // The number of steps done in the epoch.
  int64_t step_in_epoch() const { return part_.first_step_in_epoch + run_.progress.step - part_.first_step; }
  void log_interval();
  // To be called after a step that does not end an interval.
  void report_progress();
  // `interval`: the measured steps, up to the latest one; `seconds`: of all steps of the run.
  reporting::TrainEvent describe(const Interval& interval, double seconds) const;
  // Validates if validation.every_steps requires it after the current step. Returns false after a stop request.
  bool validate_within_epoch();
  void report_epoch();
  void advise_on_data();
  void check_finite();
  // Checks that the steps of the open interval are finite, and records its durations, so that the interval can be saved, or continued after
  // a validation.
  void close_interval();
  void save(bool is_best = false);
  // Collective: rank 0 waits for the last checkpoint and reports the end; the other ranks throw if that failed.
  void end_together(const std::string& reason, const std::string& message);
  // To be called after an error; does not throw.
  void report_failure(const std::string& message);
  void finish(const std::string& reason, const std::string& message);

  const LoopOptions options_;
  Parts& parts_;
  reporting::Sink& reporter_;
  std::function<bool()> should_stop_;
  distributed::StopConsensus stop_consensus_;
  task::TrainMeter meter_;  // of the logging interval
  TrainStep train_step_;
  NonFiniteSteps non_finite_steps_;
  RunState run_;
  Validations validations_;
  Checkpoints checkpoints_;
  std::vector<TrainingHook*> hooks_;
  std::optional<reporting::Resume> resume_;
  EpochPart part_;                                                    // the part that is being trained
  double lr_ = 0;                                                     // of the latest step
  std::optional<supervision::StragglerDetector> straggler_detector_;  // with several ranks
  IntervalClock clock_;
  std::optional<std::chrono::steady_clock::time_point> reported_at_;  // when this process last reported steps or a validation
  std::function<std::string(const Interval& epoch, int64_t number)> advise_on_data_;
  bool has_advised_ = false;
};

}  // namespace trainer::engine
