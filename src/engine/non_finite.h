#pragma once
// What becomes of a step whose loss or gradients are not finite: it is left out, looked into, kept, and ends the run or not.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "config/sections/training.h"
#include "engine/parts.h"
#include "engine/step_record.h"
#include "engine/train_step.h"

namespace trainer::engine {

class NonFiniteSteps {
 public:
  // Keeps a step for later, and returns where; called on one rank.
  using Keep = std::function<std::filesystem::path(const StepRecord& record)>;

  // The other arguments must outlive it. `keep` empty: steps are not kept.
  NonFiniteSteps(config::OnNonFinite policy, Parts& parts, TrainStep& train_step, Keep keep);

  // Whether every step has to be looked at; else, on a GPU, those that end a logging interval are enough: what comes between changes
  // nothing.
  bool looks_at_each_step() const;

  // Collective, after the update of step `step` of `part`; waits for the device. A step that was not finite throws an AgreedError where the
  // run is to end, or when too many were so in a row. Otherwise it is undone and loading goes on with the next step; returns what rank 0 is
  // to say of it, and nothing on the others.
  std::string check(const EpochPart& part, int64_t step, const std::function<double(int64_t)>& lr_at);

 private:
  struct Finding;
  // Of this rank's part of a step.
  Finding examine(const EpochPart& part, int64_t step);
  std::string describe(const StepRecord& record, int64_t seen_at);
  StepRecord make_record(const EpochPart& part, int64_t step, double lr);
  std::string keep(const StepRecord& record);

  config::OnNonFinite policy_;
  Parts& parts_;
  TrainStep& train_step_;
  Keep keep_;
  int64_t num_kept_ = 0;
  int64_t last_step_ = -2;  // that was not finite
  int64_t num_in_row_ = 0;
};

}  // namespace trainer::engine
