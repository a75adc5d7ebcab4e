#pragma once
// One optimizer step: the only place where forward, backward, clipping and update meet.

#include <optional>
#include <string>
#include <vector>

#include "engine/parts.h"
#include "task/meters.h"

namespace trainer::engine {

// A tensor that a pass has met.
struct Observation {
  std::string what;  // "the output of layer1.0.conv1"
  std::vector<int64_t> shape;
  double largest = 0;          // of its finite values, without their signs
  int64_t num_non_finite = 0;  // of its values
};

class TrainStep {
 public:
  // `parts`, whose ranks are joined, must outlive it. `meter` receives each micro-step's loss and hits.
  TrainStep(Parts& parts, uint64_t seed, std::optional<double> max_grad_norm, task::TrainMeter& meter);

  // Collective: forward and backward of this rank's batch, which may be empty. The gradient that adds up over the step's micro-steps and
  // over the ranks is the mean over all the step's samples.
  void micro_step(const input::Batch& batch, const MicroStep& micro_step);
  // The update from the gradients so far, at learning rate `lr`; drops them. When a loss or gradient on any rank was not finite, neither
  // this step nor a later one changes the parameters, until undo().
  void update(double lr);

  // The first step, since the beginning or undo(), whose loss or gradients were not finite on any rank; the same on all of them. Waits
  // for the device. Under float16 only at a loss scale of 1 or less: above it, the GradScaler looks for the right one.
  std::optional<int64_t> non_finite_step() const;
  // Its loss scale; none without a GradScaler.
  std::optional<double> non_finite_scale() const;
  // Whether a loss of this rank was not finite, since the beginning or undo().
  bool had_non_finite_loss() const;
  // The last step was not finite: the meter and the model's buffers are as they were before it.
  void undo();

  // Collective like micro_step(): the same passes with a look at all that they meet, in that order; of the gradients, which are this
  // rank's own, only those that are not finite. Leaves everything as it was, but for gradients, which are dropped.
  std::vector<Observation> examine(const input::Batch& batch, const MicroStep& micro_step);

 private:
  using Pass = task::Task::Pass;
  Pass forward(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step);
  torch::Tensor weighted(const torch::Tensor& loss, int64_t size, const MicroStep& micro_step) const;
  Pass forward_and_backward(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step, bool sums_gradients);
  torch::Tensor note_non_finite();
  void observe_pass(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step,
                    std::vector<Observation>& observations);

  Parts& parts_;
  uint64_t seed_;
  std::optional<double> max_grad_norm_;
  task::TrainMeter& meter_;
  std::vector<torch::Tensor> buffers_;         // of the model
  std::vector<torch::Tensor> marked_buffers_;  // their values before the step
  int64_t step_ = 0;                           // that the gradients so far belong to
  torch::Tensor non_finite_step_;              // int64 scalar on the device, -1: none
  torch::Tensor non_finite_scale_;             // float32 scalar on the device
  torch::Tensor finite_losses_;                // scalar on the device: 0, or NaN once a loss was not finite
};

}  // namespace trainer::engine
