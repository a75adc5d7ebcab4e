#pragma once
// The training loop.

#include <functional>

#include "config/experiment.h"
#include "distributed/stop_agreement.h"
#include "engine/non_finite.h"
#include "engine/parts.h"
#include "engine/straggler_watch.h"
#include "engine/train_step.h"
#include "reporting/events.h"

namespace trainer::engine {

class Trainer {
 public:
  // All arguments must outlive it. `should_stop` is asked at every step and validation batch; what any rank answers, all do. `keep`: on
  // rank 0, for steps that are not finite.
  Trainer(const config::Experiment& experiment, Parts& parts, reporting::Sink& reporter, std::function<bool()> should_stop,
          NonFiniteSteps::Keep keep = {});

  // Collective. Trains to the end, or until asked to stop; false then. Throws Error when a step is not finite (naming it, its learning
  // rate and what was not finite first) or memory runs out (naming the batch size). The reporter hears of the end in every case.
  bool run();

 private:
  // Sums of one logging interval or epoch, with the time they took.
  struct Interval {
    metrics::Scores scores;
    double seconds = 0;
    double waited_seconds = 0;
    void add(const Interval& other);
  };

  bool run_epochs();
  // Collective: whether all ranks are to stop now.
  bool stop_agreed();
  bool train_epoch(int64_t epoch);
  void take_step(int64_t step);
  void log_interval(int64_t epoch, int64_t step_in_epoch);
  // False when asked to stop meanwhile.
  bool validate(int64_t epoch);
  void report_epoch(int64_t epoch, bool validated);
  void check_finite(int64_t epoch);
  double lr_at(int64_t step) const;
  void finish(const std::string& reason, const std::string& message);

  const config::Experiment& experiment_;
  Parts& parts_;
  reporting::Sink& reporter_;
  std::function<bool()> should_stop_;
  distributed::StopAgreement agreement_;
  metrics::ScoreMeter meter_;
  TrainStep train_step_;
  NonFiniteSteps non_finite_steps_;
  std::optional<StragglerWatch> straggler_watch_;  // of two ranks or more
  std::chrono::steady_clock::time_point interval_start_;
  double waited_before_ = 0;
  int64_t steps_done_ = 0;
  Interval epoch_;
  Interval whole_;
  std::optional<reporting::ValidationEvent> last_validation_;
  std::optional<reporting::ValidationEvent> best_validation_;
};

}  // namespace trainer::engine
