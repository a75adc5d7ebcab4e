#pragma once
// One optimizer step: the only place where forward, backward, clipping and update meet.

#include <optional>

#include "engine/parts.h"
#include "metrics/classification.h"

namespace trainer::engine {

// Which part of a step a micro-step is.
struct MicroStep {
  int64_t step = 0;
  int64_t number = 0;             // of the micro-step, from 0
  int64_t count = 1;              // micro-steps of the step
  int64_t num_group_samples = 0;  // of the whole step: of all its micro-steps, on all ranks

  bool is_first() const { return number == 0; }
  bool is_last() const { return number + 1 == count; }
};

class TrainStep {
 public:
  // `parts`, whose ranks are joined, must outlive it. `meter` receives each micro-step's loss and hits.
  TrainStep(Parts& parts, uint64_t seed, std::optional<double> max_grad_norm, metrics::ScoreMeter& meter);

  // Collective: forward and backward of this rank's batch, which may be empty. The gradient that adds up over the step's micro-steps and
  // over the ranks is the mean over all the step's samples.
  void micro_step(const input::Batch& batch, const MicroStep& micro_step);
  // The update from the gradients so far, at learning rate `lr`; drops them.
  void update(double lr);

  // The first step whose loss was not finite on this rank. Waits for the device. None under float16, where the GradScaler deals with it.
  std::optional<int64_t> non_finite_step() const;

 private:
  struct Pass {
    torch::Tensor loss;  // mean over the batch
    torch::Tensor outputs;
  };
  Pass forward_and_backward(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step, bool sums_gradients);

  Parts& parts_;
  uint64_t seed_;
  std::optional<double> max_grad_norm_;
  metrics::ScoreMeter& meter_;
  torch::Tensor non_finite_step_;  // int64 scalar on the device, -1: none
};

}  // namespace trainer::engine
