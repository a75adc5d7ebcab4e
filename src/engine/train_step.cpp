#include "engine/train_step.h"

#include "amp/autocast.h"
#include "base/random.h"

namespace trainer::engine {

TrainStep::TrainStep(Parts& parts, uint64_t seed, std::optional<double> max_grad_norm, metrics::ScoreMeter& meter)
    : parts_(parts),
      seed_(seed),
      max_grad_norm_(max_grad_norm),
      meter_(meter),
      non_finite_step_(torch::full({}, -1, torch::dtype(torch::kInt64).device(parts.placement.device))) {}

TrainStep::Pass TrainStep::forward_and_backward(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step,
                                                bool sums_gradients) {
  // 1. Randomness of this micro-step and rank alone: a resumed run draws what a straight one draws.
  const auto& world = *parts_.ranks.world;
  parts_.dropout_generator.set_current_seed(
      mix_seed(seed_, static_cast<uint64_t>(micro_step.step), static_cast<uint64_t>(micro_step.number * world.size() + world.rank())));

  // 2. Forward and loss, under autocast.
  parts_.data_parallel->before_forward(micro_step.is_first(), sums_gradients);
  const int64_t size = images.size(0);
  Pass pass;
  {
    const amp::AutocastGuard autocast(parts_.placement.device.type(), parts_.placement.autocast_dtype);
    pass.outputs = parts_.model->forward(images);
    // A mean over nothing is NaN, but this rank's part of the gradient is zero.
    pass.loss = size > 0 ? (*parts_.loss)(pass.outputs, targets) : pass.outputs.sum() * 0;
  }

  // 3. Backward, weighted so that micro-steps and ranks of unequal size add up to the mean over all their samples. Nothing else divides.
  auto weighted = size == micro_step.num_group_samples
                      ? pass.loss
                      : pass.loss * (static_cast<double>(size) / static_cast<double>(micro_step.num_group_samples));
  if (parts_.grad_scaler) weighted = parts_.grad_scaler->scale(weighted);
  parts_.data_parallel->backward(weighted, pass.outputs, sums_gradients);
  return pass;
}

void TrainStep::micro_step(const input::Batch& batch, const MicroStep& micro_step) {
  const auto images = batch.images.to(parts_.placement.device, /*non_blocking=*/true);
  const auto targets = batch.targets.to(parts_.placement.device, /*non_blocking=*/true);
  const bool twice = parts_.optimizer->needs_second_pass();
  const auto pass = forward_and_backward(images, targets, micro_step, micro_step.is_last() && !twice);
  if (twice) {
    parts_.optimizer->ascend();
    forward_and_backward(images, targets, micro_step, micro_step.is_last());
  }

  // 4. Meters, on the device.
  const torch::NoGradGuard no_grad;
  meter_.add(pass.loss, pass.outputs, targets, batch.size);
  if (parts_.grad_scaler) return;
  non_finite_step_ = torch::where(torch::isfinite(pass.loss.detach()).logical_or(non_finite_step_ >= 0), non_finite_step_, micro_step.step);
}

void TrainStep::update(double lr) {
  auto& optimizer = *parts_.optimizer;
  auto& scaler = parts_.grad_scaler;
  // 5. Unscale, so that clipping sees the true gradients. They are the same on all ranks by now, and so is found_inf.
  if (scaler) scaler->unscale(optimizer.parameters());
  // 6. Clip.
  if (max_grad_norm_) optim::clip_grad_norm(optimizer.parameters(), *max_grad_norm_);
  // 7. Update.
  optimizer.step(lr, scaler ? std::optional(scaler->found_inf()) : std::nullopt);
  if (scaler) scaler->update();
  optimizer.zero_grad();
}

std::optional<int64_t> TrainStep::non_finite_step() const {
  const auto step = non_finite_step_.item<int64_t>();
  return step < 0 ? std::nullopt : std::optional(step);
}

}  // namespace trainer::engine
