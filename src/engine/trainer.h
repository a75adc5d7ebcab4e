#pragma once
// The training loop.

#include <functional>

#include "config/experiment.h"
#include "distributed/stop_consensus.h"
#include "engine/checkpoints.h"
#include "engine/interval_clock.h"
#include "engine/monitor.h"
#include "engine/non_finite.h"
#include "engine/parts.h"
#include "engine/run_state.h"
#include "engine/train_step.h"
#include "engine/training_hook.h"
#include "reporting/events.h"
#include "supervision/straggler.h"

namespace trainer::engine {

// What a run leaves behind, on the rank that writes it; all of it may be missing.
struct SaveTargets {
  Checkpoints::Target checkpoints = {};
  NonFiniteSteps::Keep non_finite_step = {};
};

class Trainer {
 public:
  // All arguments must outlive it. `should_stop` is asked at every step and validation batch; what any rank answers, all do.
  Trainer(const config::Experiment& experiment, Parts& parts, reporting::Sink& reporter, std::function<bool()> should_stop,
          SaveTargets save_targets = {});

  // Before run(), on each rank with the same tree: it will go on from this checkpoint, which came from `file`. Throws CheckpointError.
  void resume(const state::Tree& checkpoint, const std::string& file);

  // Before run(): `hook`, which must outlive it, is called at each step, after those that were added before.
  void add_hook(TrainingHook& hook) { hooks_.push_back(&hook); }

  // Collective. Trains to the end, or until asked to stop; false then. Saves the run when it ends in either way. Throws Error when a step
  // is not finite (naming it, its learning rate and what was not finite first), memory runs out (naming the batch size) or the last
  // checkpoint cannot be written. The reporter hears of the end in every case.
  bool run();

 private:
  void start();
  bool run_epochs();
  // Collective: whether all ranks are to stop now.
  bool stop_agreed();
  // One epoch, or its rest, and its validation; false when asked to stop meanwhile.
  bool run_epoch();
  bool train();
  void take_step(int64_t step);
  void log_interval(int64_t step_in_epoch);
  bool validate();
  void report_epoch(bool validated);
  void check_finite();
  void save(bool is_best = false);
  double lr_at(int64_t step) const;
  void finish(const std::string& reason, const std::string& message);

  const config::Experiment& experiment_;
  Parts& parts_;
  reporting::Sink& reporter_;
  std::function<bool()> should_stop_;
  distributed::StopConsensus stop_consensus_;
  task::TrainMeter meter_;  // of the logging interval
  TrainStep train_step_;
  NonFiniteSteps non_finite_steps_;
  Monitor monitor_;
  RunState run_;
  Checkpoints checkpoints_;
  std::vector<TrainingHook*> hooks_;
  std::optional<reporting::Resume> resume_;
  EpochPart part_;                                                    // that is trained on
  std::optional<supervision::StragglerDetector> straggler_detector_;  // of two ranks or more
  IntervalClock clock_;
};

}  // namespace trainer::engine
