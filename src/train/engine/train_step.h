#pragma once
// One optimizer step: forward, backward, clipping and update; and what is called at each step.

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "distributed/packed_tensors.h"
#include "train/engine/parts.h"
#include "train/engine/shared_batches.h"
#include "train/engine/step_graph.h"
#include "trainer/task.h"

namespace trainer::engine {

// A callback: code that acts on the training at each step. (Sinks, in trainer/events.h, only report.) A hook is called by the training
// thread of the rank that added it. A change that it makes on one rank, it must make on all ranks.
class TrainingHook {
 public:
  virtual ~TrainingHook() = default;
  // `step`: number of steps before this one since the start of the run.
  virtual void before_step(int64_t /*step*/) {}
  // Whether on_gradients() is to be called in this step, which is then not taken from a CUDA graph.
  virtual bool needs_gradients(int64_t /*step*/) const { return false; }
  // The gradients of the step are summed over the ranks, and neither unscaled nor clipped yet.
  virtual void on_gradients(int64_t /*step*/) {}
  // `step`: the same number as in before_step(). The parameters are updated; if the step ends a logging interval, that is reported.
  virtual void after_step(int64_t /*step*/) {}
};

// Prevents a step whose loss or gradients are not finite on any rank from changing anything. On a GPU only step(), scale() and
// had_non_finite_loss() wait for the device.
class NonFiniteGuard {
 public:
  // Both must outlive it. `meter` receives the losses of the steps.
  NonFiniteGuard(Parts& parts, task::TrainMeter& meter);

  // Writes the number of the step before it begins: a graph would repeat the same number.
  void set_step(int64_t step) { step_.fill_(step); }
  // To be called before a step: copies the meter, and the model's buffers unless a step waits for undo().
  void begin_step();
  // Returns the weighted loss of a pass. Once a loss of this rank was not finite in this step or, without a GradScaler, in an earlier one,
  // it is NaN, and so are the gradients and their sum over the ranks: this is how the other ranks detect it.
  torch::Tensor mark(const torch::Tensor& weighted_loss, const torch::Tensor& loss);
  // To be called when the gradients are summed and unscaled. Returns 1 if the update must be skipped, else 0, for Optimizer::step. Once a
  // step was not finite, returns 1 for all later steps too, until undo(); but while the GradScaler can still lower its scale, for that step
  // alone, as torch.amp.GradScaler does. Then the model's buffers get back their values before the step, which torch.amp.GradScaler leaves
  // changed, and the meter does not count a loss that is not finite.
  torch::Tensor found_inf();

  // The first step since the construction or undo() whose loss or gradients were not finite on any rank; the same on all ranks. With
  // float16 such steps count only at a loss scale of 1 or less, because above it the GradScaler still lowers the scale.
  std::optional<int64_t> step() const;
  // The loss scale of that step; empty without a GradScaler.
  std::optional<double> scale() const;
  // Whether a loss of this rank was not finite since the construction or undo().
  bool had_non_finite_loss() const;
  // Restores the meter to its values before the last step, and the model's buffers to theirs before the step that step() names.
  void undo();

 private:
  Parts& parts_;
  task::TrainMeter& meter_;
  distributed::PackedTensors buffers_;  // of the model
  torch::Tensor saved_buffers_;         // their bytes before the step
  // Scalars on the device, which stay where they are.
  torch::Tensor step_;              // int64: the current step
  torch::Tensor non_finite_step_;   // int64; kNone: none
  torch::Tensor none_;              // int64: kNone
  torch::Tensor is_stopped_;        // bool: whether there is such a step
  torch::Tensor non_finite_scale_;  // float32
  torch::Tensor finite_losses_;     // float32: 1, or NaN once a loss was not finite
  torch::Tensor zero_;              // float32: 0
};

// Calls `pass` for each forward and backward pass that the optimizer needs of a micro-step: the first, and with sam a second one, before
// which the parameters are moved and in which batch normalisations do not update their running statistics. The optimizer's step() moves
// them back.
void run_passes(optim::Optimizer& optimizer, const models::Model& model, const std::function<void(int number, bool is_last)>& pass);

class TrainStep {
 public:
  using NextBatch = std::function<const data::Batch&()>;

  // `parts` must outlive it. `meter` receives each micro-step's loss and counts. Throws as StepGraph::make_if_possible().
  TrainStep(Parts& parts, uint64_t seed, std::optional<double> max_grad_norm, task::TrainMeter& meter);

  // Collective: one update of the parameters, at learning rate `lr`, from the micro-steps of one step (at least one), each with a batch
  // from `next_batch`, which may be empty. The gradient is the mean over all samples of the step, on all ranks. If a loss or gradient on
  // any rank is not finite, the parameters do not change in this step and all later ones until guard().undo(). Calls on_gradients() of
  // those `hooks` that need the gradients.
  void run(const std::vector<MicroStep>& micro_steps, const NextBatch& next_batch, double lr, const std::vector<TrainingHook*>& hooks = {});

  // To be called when other parameters are trained than before. Throws as the constructor.
  void restart();

  NonFiniteGuard& guard() { return guard_; }

  // The batch of a micro-step on the device, mixed by dataset.batch_transforms.
  DeviceBatch prepare(const data::Batch& batch, const MicroStep& micro_step) const;
  // The forward pass and loss of a micro-step, under autocast and with its random numbers. Takes the tensors of prepare().
  task::Task::Pass forward(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step);
  // The loss whose gradients add up over micro-steps and ranks, multiplied by the GradScaler's scale; of a loss that weighs samples times
  // their weights, by whose sum the gradients are still to be divided. `size`: samples of the batch.
  torch::Tensor weighted(const task::Task::Pass& pass, int64_t size, const MicroStep& micro_step) const;

 private:
  // All that a step asks of the device. `next`: the batch of a micro-step. `readers`: the hooks that need the gradients.
  void compute(const std::vector<MicroStep>& micro_steps, const std::function<DeviceBatch(const MicroStep& micro_step)>& next, double lr,
               const std::vector<TrainingHook*>& readers);
  // Collective: of a loss that weighs samples, divides the summed gradients by the weights of the step.
  void divide_by_weights(int64_t num_group_samples);
  // The random numbers belong to this micro-step and rank, so that a resumed run draws what an uninterrupted one draws. While a graph is
  // recorded, they have to be the present ones.
  void set_random_numbers(const MicroStep& micro_step);

  Parts& parts_;
  uint64_t seed_;
  std::optional<double> max_grad_norm_;
  task::TrainMeter& meter_;
  NonFiniteGuard guard_;
  std::unique_ptr<StepGraph> graph_;         // null: without one
  std::vector<torch::Tensor> cast_weights_;  // by nn::WeightCasts
  torch::Tensor step_weight_;                // float64 scalar on the device: of this rank's samples in the step, if they are weighed
};

}  // namespace trainer::engine
