#pragma once
// Handles steps whose loss or gradients are not finite: finds the first non-finite value, undoes and saves the step, and ends the run or
// not.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/options.h"
#include "train/engine/parts.h"
#include "train/engine/step_record.h"
#include "train/engine/train_step.h"

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

// Finds the first non-finite value of a step.

// A tensor of a forward and backward pass.
struct Observation {
  std::string what;  // "the output of layer1.0.conv1"
  std::vector<int64_t> shape;
  double largest = 0;          // absolute value of its finite values
  int64_t num_non_finite = 0;  // of its values
};

// Collective like TrainStep::run: repeats the passes of one micro-step with an observer. Returns, in order, non-finite parameters, the
// images, the outputs of all layers, the loss, and non-finite gradients of this rank alone. Changes nothing except that gradients are
// cleared.
std::vector<Observation> observe_micro_step(Parts& parts, TrainStep& train_step, const data::Batch& batch, const MicroStep& micro_step);

// The first observation that is not finite, or null.
const Observation* first_non_finite(const std::vector<Observation>& observations);

}  // namespace trainer::engine
