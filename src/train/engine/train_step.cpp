#include "train/engine/train_step.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "nn/batch_norm.h"
#include "nn/layers.h"
#include "trainer/amp.h"
#include "trainer/random.h"

namespace trainer::engine {
namespace {

// The value of NonFiniteGuard::non_finite_step_ when no step was non-finite.
constexpr int64_t kNone = -1;

}  // namespace

NonFiniteGuard::NonFiniteGuard(Parts& parts, task::TrainMeter& meter)
    : parts_(parts), meter_(meter), buffers_(parts.network.model->buffers()), saved_buffers_(buffers_.read()) {
  const auto scalar = [&](const at::Scalar& value, torch::ScalarType dtype) {
    return torch::full({}, value, torch::dtype(dtype).device(parts.network.placement.device));
  };
  step_ = scalar(0, torch::kInt64);
  non_finite_step_ = scalar(kNone, torch::kInt64);
  none_ = scalar(kNone, torch::kInt64);
  is_stopped_ = scalar(false, torch::kBool);
  non_finite_scale_ = scalar(0, torch::kFloat32);
  finite_losses_ = scalar(1, torch::kFloat32);
  zero_ = scalar(0, torch::kFloat32);
}

void NonFiniteGuard::begin_step() {
  meter_.mark();
  if (buffers_.empty()) return;
  if (!is_stopped_.is_cpu()) {
    at::where_out(saved_buffers_, is_stopped_, saved_buffers_, buffers_.read());
  } else if (!is_stopped_.item<bool>()) {
    saved_buffers_ = buffers_.read();
  }
}

torch::Tensor NonFiniteGuard::mark(const torch::Tensor& weighted_loss, const torch::Tensor& loss) {
  // 0 times an infinity or NaN is NaN.
  finite_losses_.addcmul_(loss.detach(), zero_);
  return weighted_loss * finite_losses_;
}

torch::Tensor NonFiniteGuard::found_inf() {
  const torch::NoGradGuard no_grad;
  const auto& scaler = parts_.network.grad_scaler;
  const auto found = scaler ? scaler->found_inf() : optim::find_non_finite(parts_.network.optimizer->parameters());
  // A fast path: on a CPU, reading the value costs nothing, and it is nearly always 0.
  if (found.is_cpu() && found.item<float>() == 0 && !step()) return found;
  auto is_found = found > 0;
  if (scaler) {
    is_found = is_found.logical_and(scaler->current_scale() <= 1);
    at::where_out(non_finite_scale_, is_found.logical_and(is_stopped_.logical_not()), scaler->current_scale(), non_finite_scale_);
  }
  at::where_out(non_finite_step_, is_stopped_, non_finite_step_, at::where(is_found, step_, none_));
  at::ne_out(is_stopped_, non_finite_step_, kNone);
  const auto is_stopped = is_stopped_.to(torch::kFloat32);
  if (!scaler) return is_stopped;
  const auto skips = at::maximum(found, is_stopped);
  // If a loss is not finite in a step that only the GradScaler skips, the meter forgets the step, and finite_losses_ becomes 1 again, so
  // that later losses are not NaN.
  const auto is_lost = finite_losses_.isnan().logical_and(is_stopped_.logical_not());
  meter_.rewind_if(is_lost);
  finite_losses_.masked_fill_(is_lost, 1);
  buffers_.write_if(skips > 0, saved_buffers_);
  return skips;
}

std::optional<int64_t> NonFiniteGuard::step() const {
  const auto step = non_finite_step_.item<int64_t>();
  return step == kNone ? std::nullopt : std::optional(step);
}

std::optional<double> NonFiniteGuard::scale() const {
  return parts_.network.grad_scaler ? std::optional(non_finite_scale_.item<double>()) : std::nullopt;
}

bool NonFiniteGuard::had_non_finite_loss() const { return finite_losses_.isnan().item<bool>(); }

void NonFiniteGuard::undo() {
  meter_.rewind();
  buffers_.write(saved_buffers_);
  non_finite_step_.fill_(kNone);
  is_stopped_.zero_();
  finite_losses_.fill_(1);
}

namespace {

// The images [N, C, H, W] with a shorter edge of `size` pixels, in the same memory format. Equals
// torchvision.transforms.v2.functional.resize of tensors, which smooths before it scales down.
torch::Tensor scale_down(const torch::Tensor& images, int64_t size) {
  const auto shape = scaled_shape(images.sizes().slice(1).vec(), size);
  if (images.size(0) == 0) return images.new_empty({0, shape[0], shape[1], shape[2]});
  // On CPUs, LibTorch scales down images in 16 bits only after a conversion.
  const auto dtype = at::isReducedFloatingType(images.scalar_type()) ? torch::kFloat32 : images.scalar_type();
  return at::_upsample_bilinear2d_aa(images.to(dtype), {shape[1], shape[2]}, /*align_corners=*/false).to(images.scalar_type());
}

// A random stream different from that of the dropout generator.
constexpr uint64_t kDefaultStream = 1;

void set_default_seed(torch::Device device, uint64_t seed) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

void run_passes(optim::Optimizer& optimizer, const models::Model& model, const std::function<void(int number, bool is_last)>& pass) {
  pass(0, !optimizer.needs_second_pass());
  if (!optimizer.needs_second_pass()) return;
  optimizer.perturb_parameters();
  const nn::FrozenStatistics frozen(model);
  pass(1, true);
}

TrainStep::TrainStep(Parts& parts, uint64_t seed, std::optional<double> max_grad_norm, task::TrainMeter& meter,
                     StepGraph::OnWarning on_warning)
    : parts_(parts), seed_(seed), max_grad_norm_(max_grad_norm), meter_(meter), on_warning_(std::move(on_warning)), guard_(parts, meter) {
  if (parts_.network.task->weighs_samples())
    step_weight_ = torch::zeros({}, torch::TensorOptions(parts_.network.placement.device).dtype(torch::kFloat64));
  restart();
}

void TrainStep::restart() {
  graph_.reset();
  graph_ = StepGraph::make_if_possible(parts_, on_warning_);
  if (graph_) parts_.network.optimizer->use_lr_tensors();
  // nn::WeightCasts is not used with several ranks: it completes all gradients only at the end of the backward pass, so none could be sent
  // while others are still being computed.
  const auto& placement = parts_.network.placement;
  const bool casts = !placement.device.is_cpu() && placement.autocast_dtype && parts_.ranks.world->size() == 1;
  if (casts) cast_weights_ = nn::trained_weights(*parts_.network.model);
}

void TrainStep::run(const std::vector<MicroStep>& micro_steps, const NextBatch& next_batch, double lr,
                    const std::vector<TrainingHook*>& hooks) {
  const auto& first = micro_steps.front();
  guard_.set_step(first.step);
  std::vector<TrainingHook*> readers;
  std::ranges::copy_if(hooks, std::back_inserter(readers), [&](const auto* hook) { return hook->needs_gradients(first.step); });
  const auto next = [&](const MicroStep& micro_step) { return prepare(next_batch(), micro_step); };
  if (!graph_) {
    compute(micro_steps, next, lr, readers);
    return;
  }
  parts_.network.optimizer->set_lr(lr);
  const auto batch = next(first);
  const auto run = [&](const DeviceBatch& used) {
    compute(
        micro_steps, [&](const MicroStep&) { return used; }, lr, readers);
  };
  // A graph repeats the loss factor of the recorded step, so it is used only for whole batches, which need no factor.
  const bool is_whole = batch.images.size(0) == first.num_group_samples;
  if (is_whole && readers.empty()) {
    set_random_numbers(first);
    graph_->run(batch, run);
  } else {
    run(batch);
  }
}

void TrainStep::compute(const std::vector<MicroStep>& micro_steps, const std::function<DeviceBatch(const MicroStep&)>& next, double lr,
                        const std::vector<TrainingHook*>& readers) {
  auto& optimizer = *parts_.network.optimizer;
  auto& scaler = parts_.network.grad_scaler;
  auto& data_parallel = *parts_.data_parallel;
  const auto step = micro_steps.front().step;
  guard_.begin_step();
  if (step_weight_.defined()) step_weight_.zero_();
  for (const auto& micro_step : micro_steps) {
    const auto [images, targets] = next(micro_step);
    const auto size = images.size(0);
    run_passes(optimizer, *parts_.network.model, [&, &images = images, &targets = targets](int number, bool is_last) {
      const bool reduces = micro_step.is_last() && (is_last || optimizer.needs_first_pass_summed());
      data_parallel.before_forward(micro_step.is_first(), reduces);
      // 1. Forward and loss.
      const auto pass = forward(images, targets, micro_step);
      // 2. Backward. During a pass that reduces, buckets of gradients are summed over the ranks.
      const auto loss = guard_.mark(weighted(pass, size, micro_step), pass.loss);
      data_parallel.backward(loss, reduces);
      if (number == 0) meter_.add(pass.loss, pass.outputs, targets, size, pass.weight);
      if (number == 0 && step_weight_.defined()) pass.weight.defined() ? step_weight_.add_(pass.weight) : step_weight_.add_(size);
    });
  }
  if (step_weight_.defined()) divide_by_weights(micro_steps.front().num_group_samples);
  for (auto* hook : readers) hook->on_gradients(step);
  // 3. Unscale, so that clipping sees the true gradients, which are the same on all ranks now.
  if (scaler) scaler->unscale(optimizer.parameters());
  const auto found_inf = guard_.found_inf();
  // 4. Clip.
  if (max_grad_norm_) optim::clip_grad_norm(optimizer.parameters(), *max_grad_norm_);
  // 5. Update the parameters and their averages.
  optimizer.step(lr, found_inf);
  if (parts_.ema) parts_.ema->update(found_inf);
  if (scaler) scaler->update();
  optimizer.zero_grad();
}

DeviceBatch TrainStep::prepare(const data::Batch& batch, const MicroStep& micro_step) {
  auto copies = parts_.data.train.on_device.copy(batch);
  const auto& plan = parts_.data.plan;
  if (const auto size = plan.image_size_in(micro_step.epoch); size > 0) copies.images = scale_down(copies.images, size);
  if (!parts_.data.batch_mixer) return copies;
  const bool is_unmixed = plan.num_epochs && *plan.num_epochs - micro_step.epoch <= parts_.data.num_unmixed_epochs;
  auto [images, targets] = is_unmixed ? parts_.data.batch_mixer->apply_nothing(copies.images, copies.targets)
                                      : parts_.data.batch_mixer->apply(copies.images, copies.targets, micro_step.step, micro_step.stream);
  return {std::move(images), std::move(targets)};
}

void TrainStep::set_random_numbers(const MicroStep& micro_step) {
  const auto seed = mix_seed(seed_, static_cast<uint64_t>(micro_step.step), static_cast<uint64_t>(micro_step.stream));
  parts_.network.dropout_generator.set_current_seed(seed);
  // LibTorch's own layers, which a plug-in's network may have, use the default generator.
  set_default_seed(parts_.network.placement.device, mix_seed(seed, kDefaultStream));
}

task::Task::Pass TrainStep::forward(const torch::Tensor& images, const torch::Tensor& targets, const MicroStep& micro_step) {
  set_random_numbers(micro_step);
  const amp::AutocastGuard autocast(parts_.network.placement.device.type(), parts_.network.placement.autocast_dtype);
  std::optional<nn::WeightCasts> casts;
  if (!cast_weights_.empty()) casts.emplace(cast_weights_, *parts_.network.placement.autocast_dtype);
  nn::BatchCounts counts;
  auto pass = parts_.network.task->forward(*parts_.network.model, images, targets);
  counts.add();
  return pass;
}

// Weights each micro-step and rank by its number of samples, so that the sum of the gradients is the mean over all samples.
torch::Tensor TrainStep::weighted(const task::Task::Pass& pass, int64_t size, const MicroStep& micro_step) const {
  const auto& loss = pass.loss;
  const auto num_group_samples = static_cast<double>(micro_step.num_group_samples);
  const auto weighted = pass.weight.defined()                  ? loss * (pass.weight / num_group_samples).to(loss.scalar_type())
                        : size == micro_step.num_group_samples ? loss
                                                               : loss * (static_cast<double>(size) / num_group_samples);
  return parts_.network.grad_scaler ? parts_.network.grad_scaler->scale(weighted) : weighted;
}

void TrainStep::divide_by_weights(int64_t num_group_samples) {
  // The gradients are divided at the end, because the weights of later micro-steps are unknown during the first backward pass.
  const torch::NoGradGuard no_grad;
  parts_.ranks.world->all_reduce(step_weight_);
  at::_foreach_mul_(optim::gradients_of(parts_.network.optimizer->parameters()), static_cast<double>(num_group_samples) / step_weight_);
}

}  // namespace trainer::engine
