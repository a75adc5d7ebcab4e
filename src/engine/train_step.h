#pragma once
// One optimizer step: forward, backward, clipping and update.

#include <functional>
#include <optional>
#include <vector>

#include "engine/copy_event.h"
#include "engine/non_finite_guard.h"
#include "engine/parts.h"
#include "engine/training_hook.h"
#include "trainer/task.h"

namespace trainer::engine {

// Calls `pass` for each forward and backward pass that the optimizer needs of a micro-step: the first, and with sam a second one, before
// which the parameters are moved and in which batch normalisations do not update their running statistics. The optimizer's step() moves
// them back.
void run_passes(optim::Optimizer& optimizer, const models::Model& model, const std::function<void(int number, bool is_last)>& pass);

class TrainStep {
 public:
  using NextBatch = std::function<const data::Batch&()>;

  // `parts` must outlive it. `meter` receives each micro-step's loss and counts.
  TrainStep(Parts& parts, uint64_t seed, std::optional<double> max_grad_norm, task::TrainMeter& meter);

  // Collective: one update of the parameters, at learning rate `lr`, from the micro-steps of one step (at least one), each with a batch
  // from `next_batch`, which may be empty. The gradient is the mean over all samples of the step, on all ranks. If a loss or gradient on
  // any rank is not finite, the parameters do not change in this step and all later ones until guard().undo(). Calls on_gradients() of
  // `hooks`.
  void run(const std::vector<MicroStep>& micro_steps, const NextBatch& next_batch, double lr, const std::vector<TrainingHook*>& hooks = {});

  NonFiniteGuard& guard() { return guard_; }

  // The batch of a micro-step on the device, mixed by dataset.batch_transforms.
  DeviceBatch prepare(const data::Batch& batch, const MicroStep& micro_step) const;
  // The forward pass and loss of a micro-step, under autocast and with its random numbers. Takes the tensors of prepare().
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
