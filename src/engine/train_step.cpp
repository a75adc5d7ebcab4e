#include "engine/train_step.h"

#include "amp/autocast.h"
#include "base/random.h"
#include "nn/layer_observer.h"

namespace trainer::engine {
namespace {

Observation observe(std::string what, const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  const auto is_finite = tensor.isfinite();
  const auto sizes = at::where(is_finite, tensor.abs(), 0);
  return {.what = std::move(what),
          .shape = tensor.sizes().vec(),
          .largest = tensor.numel() == 0 ? 0 : sizes.max().item<double>(),
          .num_non_finite = tensor.numel() - is_finite.sum().item<int64_t>()};
}

void copy_all(const std::vector<torch::Tensor>& to, const std::vector<torch::Tensor>& from) {
  const torch::NoGradGuard no_grad;
  if (!to.empty()) at::_foreach_copy_(to, from);
}

}  // namespace

TrainStep::TrainStep(Parts& parts, uint64_t seed, std::optional<double> max_grad_norm, task::TrainMeter& meter)
    : parts_(parts),
      seed_(seed),
      max_grad_norm_(max_grad_norm),
      meter_(meter),
      buffers_(parts.model->buffers()),
      non_finite_step_(torch::full({}, -1, torch::dtype(torch::kInt64).device(parts.placement.device))),
      non_finite_scale_(torch::zeros({}, torch::dtype(torch::kFloat32).device(parts.placement.device))),
      finite_losses_(torch::zeros({}, torch::dtype(torch::kFloat32).device(parts.placement.device))) {
  for (const auto& buffer : buffers_) marked_buffers_.push_back(torch::empty_like(buffer));
}

TrainStep::Pass TrainStep::forward(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step) {
  // 1. Randomness of this micro-step and rank alone: a resumed run draws what a straight one draws.
  parts_.dropout_generator.set_current_seed(
      mix_seed(seed_, static_cast<uint64_t>(micro_step.step), static_cast<uint64_t>(micro_step.stream)));

  // 2. Forward and loss, under autocast.
  const amp::AutocastGuard autocast(parts_.placement.device.type(), parts_.placement.autocast_dtype);
  return parts_.task->forward(*parts_.model, images, targets);
}

// Micro-steps and ranks of unequal size add up to the mean over all their samples. Nothing else divides.
torch::Tensor TrainStep::weighted(const torch::Tensor& loss, int64_t size, const MicroStep& micro_step) const {
  const auto share = static_cast<double>(size) / static_cast<double>(micro_step.num_group_samples);
  const auto weighted = size == micro_step.num_group_samples ? loss : loss * share;
  return parts_.grad_scaler ? parts_.grad_scaler->scale(weighted) : weighted;
}

TrainStep::Pass TrainStep::forward_and_backward(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step,
                                                bool sums_gradients) {
  parts_.data_parallel->before_forward(micro_step.is_first(), sums_gradients);
  auto pass = forward(images, targets, micro_step);
  // 3. Backward. A loss that is not finite makes gradients that are not, by which all ranks know of it.
  const auto loss = pass.loss.detach();
  finite_losses_ += loss - loss;
  parts_.data_parallel->backward(weighted(pass.loss, images.size(0), micro_step) * (finite_losses_ + 1), pass.outputs, sums_gradients);
  return pass;
}

void TrainStep::micro_step(const input::Batch& batch, const MicroStep& micro_step) {
  const auto images = batch.images.to(parts_.placement.device, /*non_blocking=*/true);
  const auto targets = batch.targets.to(parts_.placement.device, /*non_blocking=*/true);
  if (micro_step.is_first()) {
    step_ = micro_step.step;
    meter_.mark();
    copy_all(marked_buffers_, buffers_);
  }
  const bool twice = parts_.optimizer->needs_second_pass();
  const auto pass = forward_and_backward(images, targets, micro_step, micro_step.is_last() && !twice);
  if (twice) {
    parts_.optimizer->ascend();
    forward_and_backward(images, targets, micro_step, micro_step.is_last());
  }

  // 4. Meters, on the device.
  meter_.add(pass.loss, pass.outputs, targets, batch.size);
}

void TrainStep::update(double lr) {
  auto& optimizer = *parts_.optimizer;
  auto& scaler = parts_.grad_scaler;
  // 5. Unscale, so that clipping sees the true gradients. They are the same on all ranks by now, and so is what is not finite.
  if (scaler) scaler->unscale(optimizer.parameters());
  const auto found_inf = note_non_finite();
  // 6. Clip.
  if (max_grad_norm_) optim::clip_grad_norm(optimizer.parameters(), *max_grad_norm_);
  // 7. Update, and average.
  optimizer.step(lr, found_inf);
  if (parts_.ema) parts_.ema->update(found_inf);
  if (scaler) scaler->update();
  optimizer.zero_grad();
}

// Whether the update is to be left out, as Optimizer::step takes it.
torch::Tensor TrainStep::note_non_finite() {
  const torch::NoGradGuard no_grad;
  const auto& scaler = parts_.grad_scaler;
  const auto found = scaler ? scaler->found_inf() : optim::find_non_finite(parts_.optimizer->parameters());
  // On a CPU the answer is there, and nearly always the same.
  if (found.is_cpu() && found.item<float>() == 0 && !non_finite_step()) return found;
  auto is_first = (non_finite_step_ < 0).logical_and(found > 0);
  if (scaler) {
    is_first = is_first.logical_and(scaler->current_scale() <= 1);
    non_finite_scale_ = at::where(is_first, scaler->current_scale(), non_finite_scale_);
  }
  non_finite_step_ = at::where(is_first, step_, non_finite_step_);
  return at::maximum(found, (non_finite_step_ >= 0).to(torch::kFloat32));
}

std::optional<int64_t> TrainStep::non_finite_step() const {
  const auto step = non_finite_step_.item<int64_t>();
  return step < 0 ? std::nullopt : std::optional(step);
}

std::optional<double> TrainStep::non_finite_scale() const {
  return parts_.grad_scaler ? std::optional(non_finite_scale_.item<double>()) : std::nullopt;
}

bool TrainStep::had_non_finite_loss() const { return finite_losses_.isnan().item<bool>(); }

void TrainStep::undo() {
  meter_.rewind();
  copy_all(buffers_, marked_buffers_);
  non_finite_step_.fill_(-1);
  finite_losses_.zero_();
}

std::vector<Observation> TrainStep::examine(const input::Batch& batch, const MicroStep& micro_step) {
  std::vector<torch::Tensor> buffers;
  for (const auto& buffer : buffers_) buffers.push_back(buffer.clone());
  const auto images = batch.images.to(parts_.placement.device);
  const auto targets = batch.targets.to(parts_.placement.device);
  auto& optimizer = *parts_.optimizer;
  optimizer.zero_grad();
  std::vector<Observation> observations;
  for (const auto& parameter : parts_.model->named_parameters()) {
    auto seen = observe("the parameter " + parameter.key(), parameter.value());
    if (seen.num_non_finite > 0) observations.push_back(std::move(seen));
  }
  observations.push_back(observe("the images", images));
  observe_pass(images, targets, micro_step, observations);
  if (optimizer.needs_second_pass()) {
    optimizer.ascend();
    observe_pass(images, targets, micro_step, observations);
    optimizer.step(0, torch::ones({}, torch::dtype(torch::kFloat32).device(images.device())));
  }
  optimizer.zero_grad();
  copy_all(buffers_, buffers);
  return observations;
}

void TrainStep::observe_pass(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step,
                             std::vector<Observation>& observations) {
  const auto modules = parts_.model->named_modules();
  const auto see = [&](const torch::nn::Module& layer, const torch::Tensor& output) {
    for (const auto& module : modules) {
      if (module.value().get() == &layer) observations.push_back(observe("the output of " + module.key(), output));
    }
  };
  Pass pass;
  {
    const nn::LayerObserver observer(see);
    pass = forward(images, targets, micro_step);
  }
  observations.push_back(observe("the loss", pass.loss));
  weighted(pass.loss, images.size(0), micro_step).backward();
  // Backward goes from the last layer to the first.
  const auto parameters = parts_.model->named_parameters();
  for (size_t i = parameters.size(); i-- > 0;) {
    const auto& gradient = parameters[i].value().grad();
    if (!gradient.defined()) continue;
    auto seen = observe("the gradient of " + parameters[i].key(), gradient);
    if (seen.num_non_finite > 0) observations.push_back(std::move(seen));
  }
}

}  // namespace trainer::engine
