#pragma once

#include <torch/torch.h>

#include <optional>
#include <vector>

#include "engine/parts.h"
#include "task/meters.h"

namespace trainer::engine {

// Keeps a step whose loss or gradients are not finite on any rank from changing anything. On a GPU nothing here waits for the device but
// step(), scale() and had_non_finite_loss().
class NonFiniteGuard {
 public:
  // Both must outlive it. `meter` receives the losses of the steps.
  NonFiniteGuard(Parts& parts, task::TrainMeter& meter);

  // Before a step: remembers the model's buffers and the meter.
  void begin_step(int64_t step);
  // The weighted loss of a pass, which is NaN from the first loss of this rank that was not finite on: so are its gradients, then
  // their sum over the ranks, and all ranks learn of it.
  torch::Tensor mark(const torch::Tensor& weighted_loss, const torch::Tensor& loss);
  // After the gradients are summed and unscaled: 1 where the update has to be left out, else 0, as Optimizer::step takes it. Once a step
  // was not finite, also for all later steps, until undo().
  torch::Tensor found_inf();

  // The first step, since the beginning or undo(), whose loss or gradients were not finite on any rank; the same on all of them. Under
  // float16 only at a loss scale of 1 or less: above it, the GradScaler looks for the right one.
  std::optional<int64_t> step() const;
  // Its loss scale; empty without a GradScaler.
  std::optional<double> scale() const;
  // Whether a loss of this rank was not finite, since the beginning or undo().
  bool had_non_finite_loss() const;
  // Makes the meter and the model's buffers what they were before the last step.
  void undo();

 private:
  Parts& parts_;
  task::TrainMeter& meter_;
  std::vector<torch::Tensor> buffers_;        // of the model
  std::vector<torch::Tensor> saved_buffers_;  // their values before the step
  int64_t step_ = 0;                          // under way
  torch::Tensor non_finite_step_;             // int64 scalar on the device, -1: none
  torch::Tensor non_finite_scale_;            // float32 scalar on the device
  torch::Tensor finite_losses_;               // float32 scalar on the device: 0, or NaN once a loss was not finite
};

}  // namespace trainer::engine
