#pragma once
// One optimizer step (forward, backward, clipping and update).

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "distributed/packed_tensors.h"
#include "train/engine/device_batches.h"
#include "train/engine/parts.h"
#include "train/engine/step_graph.h"
#include "trainer/hook.h"
#include "trainer/task.h"
#include "trainer/torch.h"

namespace trainer::engine {

// Makes sure that a step whose loss or gradients are not finite on at least one rank changes nothing. On a GPU only step(), scale() and
// had_non_finite_loss() wait for the device.
class NonFiniteGuard {
 public:
  // `parts` and `meter` must outlive this object. `meter` receives the losses of the steps.
  NonFiniteGuard(Parts& parts, task::TrainMeter& meter);

  // To be called before each step, outside a CUDA graph, which would repeat the same number.
  void set_step(int64_t step) { step_.fill_(step); }
  // To be called before a step. Saves the meter. Also saves the model's buffers, except while a non-finite step still has to be undone.
  void begin_step();
  // Returns `weighted_loss`, or NaN if a `loss` of this rank was not finite since the construction or undo(). Steps for which found_inf()
  // let the GradScaler lower its scale do not count. The NaN spreads to the gradients and their sum over the ranks, where the other ranks
  // detect it.
  torch::Tensor mark(const torch::Tensor& weighted_loss, const torch::Tensor& loss);
  // To be called when the gradients are summed and unscaled. Returns 1 if the update must be skipped, else 0, for Optimizer::step. After a
  // step that was not finite, returns 1 for all later steps too, until undo(). But while the GradScaler can still lower its scale, returns
  // 1 for that step alone, as torch.amp.GradScaler does; in this case the model's buffers are restored (torch.amp.GradScaler leaves them
  // changed), and the meter does not count the step if a loss of this rank was not finite.
  torch::Tensor found_inf();

  // The first step since the construction or undo() whose loss or gradients were not finite on at least one rank; the result is the same on
  // all ranks. With float16, only steps at a loss scale of at most 1 count, because above it the GradScaler lowers the scale.
  std::optional<int64_t> step() const;
  // The loss scale of step(); empty without a GradScaler.
  std::optional<double> scale() const;
  // Whether a loss of this rank was not finite since the construction or undo().
  bool had_non_finite_loss() const;
  // Restores the meter to its state before the last step, and the model's buffers to their values before step number step().
  void undo();

 private:
  Parts& parts_;
  task::TrainMeter& meter_;
  distributed::PackedTensors buffers_;  // of the model
  torch::Tensor saved_buffers_;         // their bytes before the step
  // Scalars on the device; they keep their addresses, as a CUDA graph requires.
  torch::Tensor step_;              // int64: the current step
  torch::Tensor non_finite_step_;   // int64; kNone: none
  torch::Tensor none_;              // int64: kNone
  torch::Tensor is_stopped_;        // bool: whether non_finite_step_ is set
  torch::Tensor non_finite_scale_;  // float32
  torch::Tensor finite_losses_;     // float32: 1, or NaN once a loss was not finite
  torch::Tensor zero_;              // float32: 0
};

// Calls `pass` for each forward and backward pass that the optimizer needs in a micro-step. With sam there is a second one, for which the
// parameters are perturbed and batch normalisations do not update their running statistics; the optimizer's step() restores the parameters.
void run_passes(optim::Optimizer& optimizer, const models::Model& model, const std::function<void(int number, bool is_last)>& pass);

class TrainStep {
 public:
  using NextBatch = std::function<const data::Batch&()>;

  // `parts` and `meter` must outlive this object. `meter` receives each micro-step's loss and counts. Throws like
  // StepGraph::make_if_possible().
  TrainStep(
      Parts& parts, uint64_t seed, std::optional<double> max_grad_norm, task::TrainMeter& meter,
      StepGraph::OnWarning on_warning = [](const std::string&) {});

  // Collective: one update of the parameters at learning rate `lr` from the micro-steps of one step (at least one), each with a batch from
  // `next_batch`; a batch may have no samples. The gradient is the mean over all samples of the step on all ranks. If a loss or gradient on
  // any rank is not finite, the parameters do not change in this step, nor in the later ones until guard().undo(), except while the
  // GradScaler can still lower its scale (NonFiniteGuard::found_inf()). Calls on_gradients() of the `hooks` that need the gradients.
  void run(const std::vector<MicroStep>& micro_steps, const NextBatch& next_batch, double lr, const std::vector<TrainingHook*>& hooks = {});

  // To be called when the set of trained parameters has changed. Throws like the constructor.
  void restart();

  NonFiniteGuard& guard() { return guard_; }

  // The batch of a micro-step on the device, mixed by dataset.batch_transforms.
  DeviceBatch prepare(const data::Batch& batch, const MicroStep& micro_step);
  // The forward pass and loss of a micro-step, under autocast and with its random numbers. Takes the tensors of prepare().
  task::Task::Pass forward(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step);
  // The loss, weighted so that gradients can be summed over micro-steps and ranks, times the GradScaler's scale. If the loss weights
  // samples, the gradients must still be divided by the mean weight of the step. `size`: number of samples in the batch.
  torch::Tensor weighted(const task::Task::Pass& pass, int64_t size, const MicroStep& micro_step) const;

 private:
  // The device work of a step. `next` returns the batch of a micro-step. `readers`: the hooks that need the gradients.
  void compute(const std::vector<MicroStep>& micro_steps, const std::function<DeviceBatch(const MicroStep& micro_step)>& next, double lr,
               const std::vector<TrainingHook*>& readers);
  // Collective, for a loss that weights samples: divides the summed gradients by the mean weight of the step.
  void divide_by_weights(int64_t num_group_samples);
  // Seeds the generators for this micro-step and rank, so that a resumed run draws the same numbers as an uninterrupted one. While a graph
  // is recorded, LibTorch refuses to change the seeds, so run() calls this function first.
  void set_random_numbers(const MicroStep& micro_step);

  Parts& parts_;
  uint64_t seed_;
  std::optional<double> max_grad_norm_;
  task::TrainMeter& meter_;
  StepGraph::OnWarning on_warning_;
  NonFiniteGuard guard_;
  std::unique_ptr<StepGraph> graph_;         // null: no graph is used
  std::vector<torch::Tensor> cast_weights_;  // the weights that nn::WeightCasts converts
  torch::Tensor step_weight_;                // float64 scalar on the device: sum of this rank's sample weights
};

}  // namespace trainer::engine
