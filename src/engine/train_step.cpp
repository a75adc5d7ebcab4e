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

void TrainStep::micro_step(const input::Batch& batch, int64_t step, int64_t micro_step, int64_t num_group_samples) {
  const auto& placement = parts_.placement;
  // 1. Randomness of this step alone: a resumed run draws what a straight one draws.
  parts_.dropout_generator.set_current_seed(mix_seed(seed_, static_cast<uint64_t>(step), static_cast<uint64_t>(micro_step)));

  // 2. Forward and loss, under autocast.
  const auto images = batch.images.to(placement.device, /*non_blocking=*/true);
  const auto targets = batch.targets.to(placement.device, /*non_blocking=*/true);
  torch::Tensor outputs;
  torch::Tensor loss;
  {
    const amp::AutocastGuard autocast(placement.device.type(), placement.autocast_dtype);
    outputs = parts_.model->forward(images);
    loss = (*parts_.loss)(outputs, targets);
  }

  // 3. Backward, weighted so that micro-steps of unequal size add up to the mean over all their samples.
  const bool is_whole_group = batch.size == num_group_samples;
  (is_whole_group ? loss : loss * (static_cast<double>(batch.size) / static_cast<double>(num_group_samples))).backward();

  // 4. Meters, on the device.
  const torch::NoGradGuard no_grad;
  meter_.add(loss, outputs, targets, batch.size);
  non_finite_step_ = torch::where(torch::isfinite(loss.detach()).logical_or(non_finite_step_ >= 0), non_finite_step_, step);
}

void TrainStep::update(double lr) {
  // 5. Clip.
  if (max_grad_norm_) optim::clip_grad_norm(parts_.optimizer->parameters(), *max_grad_norm_);
  // 6. Update.
  parts_.optimizer->step(lr);
  parts_.optimizer->zero_grad();
}

std::optional<int64_t> TrainStep::non_finite_step() const {
  const auto step = non_finite_step_.item<int64_t>();
  return step < 0 ? std::nullopt : std::optional(step);
}

}  // namespace trainer::engine
