#pragma once
// One optimizer step: the only place where forward, backward, clipping and update meet.

#include <optional>

#include "engine/parts.h"
#include "metrics/classification.h"

namespace trainer::engine {

class TrainStep {
 public:
  // `parts` must outlive it. `meter` receives each micro-step's loss and hits.
  TrainStep(Parts& parts, uint64_t seed, std::optional<double> max_grad_norm, metrics::ScoreMeter& meter);

  // Forward and backward of one batch, number `micro_step` of step number `step`. `num_group_samples`: the samples of all the step's
  // micro-steps; the gradient that adds up over them is the mean over these samples.
  void micro_step(const input::Batch& batch, int64_t step, int64_t micro_step, int64_t num_group_samples);
  // The update from the gradients so far, at learning rate `lr`; drops them.
  void update(double lr);

  // The first step whose loss was not finite. Waits for the device.
  std::optional<int64_t> non_finite_step() const;

 private:
  Parts& parts_;
  uint64_t seed_;
  std::optional<double> max_grad_norm_;
  metrics::ScoreMeter& meter_;
  torch::Tensor non_finite_step_;  // int64 scalar on the device, -1: none
};

}  // namespace trainer::engine
