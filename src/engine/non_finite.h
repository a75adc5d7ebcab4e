#pragma once
// Handles steps whose loss or gradients are not finite: finds the first non-finite value, undoes and saves the step, and ends the run or
// not.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "engine/options.h"
#include "engine/parts.h"
#include "engine/step_record.h"
#include "engine/train_step.h"

namespace trainer::engine {

class NonFiniteSteps {
 public:
  // Saves a step and returns its folder; called on one rank.
  using Save = std::function<std::filesystem::path(const StepRecord& record)>;

  // `parts` and `train_step` must outlive it. `save` empty: steps are not saved.
  NonFiniteSteps(OnNonFinite policy, Parts& parts, TrainStep& train_step, Save save);

  // Whether check() must be called after every step. If not, on a GPU, it may be called at the end of each logging interval, because the
  // steps after a non-finite one change nothing.
  bool checks_each_step() const;

  // Collective, after the update of step `step` of `part`; waits for the device. If a step was not finite, undoes it, and throws
  // AgreedError if the run has to end or too many steps in a row were not finite. Otherwise loads the next step and returns a message on
  // rank 0. Returns an empty text on the other ranks, and when all steps were finite.
  std::string check(const EpochPart& part, int64_t step);

 private:
  struct Finding;
  // Repeats this rank's part of a step.
  Finding examine(const EpochPart& part, int64_t step);
  std::string describe(const StepRecord& record, int64_t seen_at);
  StepRecord make_record(const EpochPart& part, int64_t step);
  std::string save(const StepRecord& record);

  OnNonFinite policy_;
  Parts& parts_;
  TrainStep& train_step_;
  Save save_;
  int64_t num_saved_ = 0;
  int64_t last_step_ = -2;  // the last step that was not finite
  int64_t num_in_row_ = 0;
};

}  // namespace trainer::engine
