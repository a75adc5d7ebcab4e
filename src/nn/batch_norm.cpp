#include "nn/batch_norm.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "nn/fused_norm/gpu.h"
#include "trainer/error.h"
#include "trainer/torch.h"

namespace trainer::nn {

BatchNorm2d::BatchNorm2d(int64_t num_channels, const BatchNormOptions& options, std::shared_ptr<const distributed::ProcessGroup> group)
    : options_(options), group_(group && group->size() > 1 ? std::move(group) : nullptr) {
  const auto ones = torch::ones({num_channels});
  weight = options.learns_weight ? register_parameter("weight", ones) : register_buffer("weight", ones);
  bias = register_parameter("bias", torch::zeros({num_channels}));
  running_mean = register_buffer("running_mean", torch::zeros({num_channels}));
  running_var = register_buffer("running_var", torch::ones({num_channels}));
  num_batches_tracked = register_buffer("num_batches_tracked", torch::zeros({}, torch::kInt64));
}

torch::Tensor BatchNorm2d::apply(const torch::Tensor& x, const torch::Tensor& residual, Activation activation) {
  const bool is_empty = x.numel() == 0 && !(is_training() && group_);
  // An observer needs the normalised values before the ReLU, which could hide an infinite value.
  if (is_fused_ && !is_empty && LayerObserver::current() == nullptr) {
    if (fused_norm::supports(x, residual, evaluation_layer())) {
      const auto fused = fused_norm::fused_activation(activation);
      if (is_training() && !group_) check_count(x);
      const auto y = fused_norm::normalise(x, residual, layer_for_batch(), fused.value_or(FusedActivation::kNone));
      if (is_training()) count_batch();
      return fused ? y : activate(y, activation);
    }
  }
  auto y = observed(*this, normalise(x));
  if (residual.defined()) y = y.add_(residual);
  return activation == Activation::kRelu ? y.relu_() : activate(y, activation);
}

fused_norm::Layer BatchNorm2d::evaluation_layer() const {
  return {.weight = weight, .bias = bias, .running_mean = running_mean, .running_var = running_var, .eps = options_.eps, .gpu = gpu_};
}

fused_norm::Folded BatchNorm2d::fold(const torch::Tensor& w, const torch::Tensor& b) const {
  return fused_norm::fold(w, b, evaluation_layer());
}

fused_norm::Layer BatchNorm2d::layer_for_batch() {
  auto layer = evaluation_layer();
  if (!is_training()) return layer;
  layer.is_training = true;
  layer.group = group_;
  layer.batch_weight = next_batch_weight();
  std::tie(layer.running_mean, layer.running_var) = statistics_to_update();
  return layer;
}

torch::Tensor BatchNorm2d::normalise(const torch::Tensor& x) {
  if (is_training() && group_) {
    const auto [mean, var] = statistics_to_update();
    const auto y = normalise_over_ranks(x, weight, bias, {group_, mean, var, next_batch_weight(), options_.eps});
    count_batch();
    return y;
  }
  double batch_weight = 0;
  auto statistics = std::pair(running_mean, running_var);
  if (is_training() && x.numel() > 0) {
    check_count(x);
    batch_weight = next_batch_weight();
    statistics = statistics_to_update();
    count_batch();
  }
  return at::batch_norm(x, weight, bias, statistics.first, statistics.second, is_training(), batch_weight, options_.eps,
                        at::globalContext().userEnabledCuDNN());
}

void BatchNorm2d::check_count(const torch::Tensor& x) const {
  if (x.numel() != x.size(1)) return;
  throw UsageError(c10::str(
      "batch normalisation cannot train on one value per channel (its input has the shape ", x.sizes(),
      "); use a larger dataloader.batch_size or larger images, or set dataloader.drop_last: true if it is the last batch of an epoch"));
}

double BatchNorm2d::next_batch_weight() const {
  return options_.momentum ? *options_.momentum : 1.0 / static_cast<double>(num_batches_tracked.item<int64_t>() + 1);
}

std::pair<torch::Tensor, torch::Tensor> BatchNorm2d::statistics_to_update() const {
  if (updates_statistics_) return {running_mean, running_var};
  return {running_mean.clone(), running_var.clone()};
}

void BatchCounts::add() {
  if (!counts_.empty()) at::_foreach_add_(counts_, 1);
  counts_.clear();
}

void BatchNorm2d::count_batch() {
  if (!updates_statistics_) return;
  // BatchCounts::add() counts later. Without a momentum, the weight of the next batch depends on the count, so the count must be exact now.
  if (auto* current = BatchCounts::current(); current != nullptr && options_.momentum) {
    auto& counts = current->counts_;
    const auto is_this = [this](const torch::Tensor& count) { return count.is_same(num_batches_tracked); };
    if (std::ranges::none_of(counts, is_this)) return counts.push_back(num_batches_tracked);
  }
  const torch::NoGradGuard no_grad;
  num_batches_tracked.add_(1);
}

void BatchNorm2d::freeze_statistics() {
  has_frozen_statistics_ = true;
  train(false);
}

void BatchNorm2d::train(bool on) { torch::nn::Module::train(on && !has_frozen_statistics_); }

void BatchNorm2d::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  const torch::Tensor count = num_batches_tracked.detach();
  torch::nn::Module::to(device, dtype, non_blocking);
  num_batches_tracked.set_data(count.to(device, non_blocking));
}

void BatchNorm2d::to(torch::Dtype dtype, bool non_blocking) {
  const torch::Tensor count = num_batches_tracked.detach();
  torch::nn::Module::to(dtype, non_blocking);
  num_batches_tracked.set_data(count);
}

FrozenStatistics::FrozenStatistics(const torch::nn::Module& model) {
  for (const auto& module : model.modules()) {
    if (auto layer = std::dynamic_pointer_cast<BatchNorm2d>(module)) layers_.push_back(std::move(layer));
    if (!is_libtorch_batch_norm(*module)) continue;
    for (const auto& buffer : module->buffers(/*recurse=*/false)) saved_.emplace_back(buffer, buffer.clone());
  }
  for (const auto& layer : layers_) layer->set_updates_statistics(false);
}

FrozenStatistics::~FrozenStatistics() {
  for (const auto& layer : layers_) layer->set_updates_statistics(true);
  const torch::NoGradGuard no_grad;
  try {
    for (const auto& [buffer, value] : saved_) buffer.copy_(value);
  } catch (const c10::Error&) {
    // This happens only if the device has failed, and then the forward or backward pass has already reported the failure.
  }
}

bool is_libtorch_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1d>() != nullptr || module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

NormFactory batch_norms(std::shared_ptr<const distributed::ProcessGroup> group) {
  return NormFactory([group = std::move(group)](int64_t num_channels, const BatchNormOptions& options) {
    return std::make_shared<BatchNorm2d>(num_channels, options, group);
  });
}

void use_fused_operators(const torch::nn::Module& network, const device::CudaModule* cuda, c10::DeviceType device_type) {
  const auto gpu = cuda != nullptr ? std::make_shared<const fused_norm::GpuKernels>(*cuda, device_type) : nullptr;
  for (const auto& module : network.modules(/*include_self=*/false)) {
    if (auto* layer = dynamic_cast<BatchNorm2d*>(module.get())) layer->use_fused_operator(gpu);
    if (auto* layer = module->as<SqueezeExcitation>()) layer->use_fused_operator();
  }
}

void check_count(double count, at::IntArrayRef input_sizes, const distributed::ProcessGroup& group) {
  if (count >= 2) return;
  throw UsageError(c10::str(
      "batch normalisation cannot train on fewer than two values per channel over all ", group.size(),
      " ranks (the input on this rank has the shape ", input_sizes,
      "); use a larger dataloader.batch_size or larger images, or set dataloader.drop_last: true if it is the last batch of an epoch"));
}

torch::Tensor merge_moments(const torch::Tensor& parts) {
  const int64_t num_channels = (parts.size(1) - 1) / 2;
  const auto merged = at::zeros({parts.size(1)}, torch::kFloat64);
  const auto all = parts.accessor<double, 2>();
  auto result = merged.accessor<double, 1>();
  double total = 0;
  for (int64_t p = 0; p < parts.size(0); ++p) total += all[p][2 * num_channels];
  result[2 * num_channels] = total;
  if (total == 0) return merged;
  for (int64_t c = 0; c < num_channels; ++c) {
    double sum = 0;
    for (int64_t p = 0; p < parts.size(0); ++p) sum += all[p][c] * all[p][2 * num_channels];
    const double mean = sum / total;
    double squares = 0;
    for (int64_t p = 0; p < parts.size(0); ++p) {
      const double difference = all[p][c] - mean;
      squares += (all[p][num_channels + c] + difference * difference) * all[p][2 * num_channels];
    }
    result[c] = mean;
    result[num_channels + c] = squares / total;
  }
  return merged;
}

BatchStatistics join_statistics(const torch::Tensor& moments, const torch::Tensor& running_mean, const torch::Tensor& running_var,
                                double batch_weight, double eps, const distributed::ProcessGroup* group, at::IntArrayRef input_sizes) {
  const int64_t num_channels = (moments.numel() - 1) / 2;
  const auto joined = group != nullptr ? merge_moments(group->all_gather(moments)) : moments;
  const auto count = joined.narrow(0, 2 * num_channels, 1);
  const auto num_values = count.item<double>();
  if (group != nullptr) check_count(num_values, input_sizes, *group);
  const auto mean = joined.narrow(0, 0, num_channels);
  const auto var = joined.narrow(0, num_channels, num_channels);
  running_mean.lerp_(mean.to(running_mean.scalar_type()), batch_weight);
  running_var.lerp_((var * (num_values / (num_values - 1))).to(running_var.scalar_type()), batch_weight);
  return {mean, (var + eps).rsqrt(), count};
}

}  // namespace trainer::nn
