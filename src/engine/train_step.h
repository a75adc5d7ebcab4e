#pragma once
// One optimizer step: the only place where forward, backward, clipping and update meet.

#include <functional>
#include <optional>
#include <vector>

#include "engine/non_finite_guard.h"
#include "engine/parts.h"
#include "engine/training_hook.h"
#include "task/task.h"

namespace trainer::engine {

class TrainStep {
 public:
  using NextBatch = std::function<const input::Batch&()>;

  // `parts` must outlive it. `meter` receives each micro-step's loss and counts.
  TrainStep(Parts& parts, uint64_t seed, std::optional<double> max_grad_norm, task::TrainMeter& meter);

  // Collective: one update of the parameters, at learning rate `lr`, from the micro-steps of one step (one at least), each with a batch
  // of `next_batch`, which may be empty. The gradient is the mean over all samples of the step, on all ranks. Leaves the parameters as they
  // are when a loss or gradient on any rank is not finite, and from then on until guard().undo(). `hooks` see the gradients.
  void run(const std::vector<MicroStep>& micro_steps, const NextBatch& next_batch, double lr, const std::vector<TrainingHook*>& hooks = {});

  NonFiniteGuard& guard() { return guard_; }

  // The forward pass and loss of a micro-step, from tensors on the device; under autocast, with its random numbers.
  task::Task::Pass forward(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step);
  // The loss whose gradients add up over micro-steps and ranks, multiplied by the GradScaler's scale. `size`: samples of the batch.
  torch::Tensor weighted(const torch::Tensor& loss, int64_t size, const MicroStep& micro_step) const;

 private:
  Parts& parts_;
  uint64_t seed_;
  std::optional<double> max_grad_norm_;
  task::TrainMeter& meter_;
  NonFiniteGuard guard_;
};

}  // namespace trainer::engine
