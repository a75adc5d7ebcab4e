#include <ATen/ops/batch_norm_native.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "nn/batch_norm.h"
#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::nn {
namespace {

using torch::autograd::AutogradContext;
using GroupPtr = std::shared_ptr<const distributed::ProcessGroup>;

// Gradients of this rank's part of the batch; `weight` and `bias` are [C], `input` is undefined if it is not needed.
struct Gradients {
  torch::Tensor input, weight, bias;
};

// The CPU implementation, from ATen's kernels for BatchNorm2d.
namespace composed {

// Returns [2C + 1] of float64: mean and biased variance of each channel of this rank's part, and its number of values per channel.
torch::Tensor local_moments(const torch::Tensor& x, const LayerState& layer) {
  const int64_t num_channels = x.size(1);
  torch::Tensor moments = torch::zeros({2 * num_channels + 1}, torch::kFloat64);
  if (x.numel() == 0) return moments;
  // The type of the running statistics determines the type of the kernel's results.
  const torch::Tensor unused = torch::empty_like(layer.running_mean);
  const auto [mean, var] = at::batch_norm_update_stats(x, unused, unused, /*momentum=*/1.0);
  moments.narrow(0, 0, num_channels).copy_(mean);
  moments.narrow(0, num_channels, num_channels).copy_(var);
  moments.narrow(0, 2 * num_channels, 1).fill_(x.numel() / num_channels);
  return moments;
}

BatchStatistics join(const torch::Tensor& x, const LayerState& layer) {
  return join_statistics(local_moments(x, layer), layer.running_mean, layer.running_var, layer.batch_weight, layer.eps, layer.group.get(),
                         x.sizes());
}

// Computes (x − mean) · scale + shift of each channel, in the type and layout of x, as batch normalisation in evaluation with a variance of
// 1.
torch::Tensor scale_channels(const torch::Tensor& x, const torch::Tensor& mean, const torch::Tensor& scale, const torch::Tensor& shift,
                             torch::Dtype dtype) {
  if (x.numel() == 0) return torch::empty_like(x);
  return std::get<0>(at::native_batch_norm(x, scale.to(dtype), shift.to(dtype), mean.to(dtype), torch::ones_like(mean, dtype),
                                           /*training=*/false, /*momentum=*/0, /*eps=*/0));
}

torch::Tensor normalise(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const BatchStatistics& batch) {
  return scale_channels(x, batch.mean, batch.invstd * weight, bias, weight.scalar_type());
}

Gradients differentiate(const torch::Tensor& dy, const torch::Tensor& x, const torch::Tensor& weight, const BatchStatistics& batch,
                        bool needs_input, const distributed::ProcessGroup& group) {
  const torch::Dtype dtype = weight.scalar_type();
  Gradients gradients{{}, torch::zeros_like(weight), torch::zeros_like(weight)};
  if (x.numel() > 0) {
    std::tie(std::ignore, gradients.weight, gradients.bias) =
        at::native_batch_norm_backward(dy, x, weight, {}, {}, batch.mean.to(dtype), batch.invstd.to(dtype), /*train=*/true, /*eps=*/0,
                                       /*output_mask=*/{false, true, true});
  }
  if (!needs_input) return gradients;
  const torch::Tensor sums = at::stack({gradients.weight, gradients.bias}).to(torch::kFloat64);
  group.sum_in_rank_order({&sums, 1});
  // dx = (dy − mean(dy) − x̂ · mean(dy · x̂)) · invstd · weight, where x̂ = (x − mean) · invstd
  const torch::Tensor dy_scale = batch.invstd * weight;
  const torch::Tensor mean_scale = dy_scale.neg() / batch.count;
  gradients.input = scale_channels(x, batch.mean, mean_scale * batch.invstd * sums[0], mean_scale * sums[1], dtype);
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  gradients.input.addcmul_(dy, dy_scale.to(dtype).view(shape));
  return gradients;
}

}  // namespace composed

// The CUDA implementation, as in PyTorch's torch/nn/modules/_functions.py.
namespace fused {

int64_t num_values(const torch::Tensor& x) { return x.numel() / x.size(1); }

// Returns [2C + 1]: mean and invstd of this rank's part, and its number of values per channel.
torch::Tensor local_statistics(const torch::Tensor& x, double eps) {
  const int64_t num_channels = x.size(1);
  const torch::Dtype dtype = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const auto options = x.options().dtype(dtype);
  // A rank without samples passes any finite mean and invstd, because the kernel that joins the parts multiplies them by the count 0.
  if (x.numel() == 0) return torch::cat({torch::ones({2 * num_channels}, options), torch::zeros({1}, options)});
  const auto [mean, invstd] = at::batch_norm_stats(x, eps);
  return torch::cat({mean, invstd, torch::full({1}, num_values(x), options)});
}

BatchStatistics join(const torch::Tensor& x, const LayerState& layer) {
  const int64_t num_channels = x.size(1);
  // The kernel below divides by the number of values of the parts so far, so the first part must not be empty. Python drops empty parts,
  // which requires synchronizing with the device. Here, the sampler gives the first rank samples whenever it gives any rank samples.
  TORCH_CHECK(x.numel() > 0 || layer.group->rank() > 0, "the first rank's part of the batch is empty: ", x.sizes());
  const torch::Tensor all = layer.group->all_gather(local_statistics(x, layer.eps));
  const torch::Tensor counts = all.select(1, 2 * num_channels).contiguous();
  // Two values on this rank are sufficient. Otherwise the sum over all ranks is needed, and checking it requires synchronizing with the
  // device.
  if (num_values(x) < 2) check_count(counts.sum().item<double>(), x.sizes(), *layer.group);
  const auto [mean, invstd] = at::batch_norm_gather_stats_with_counts(
      x, all.narrow(1, 0, num_channels), all.narrow(1, num_channels, num_channels), layer.running_mean, layer.running_var,
      layer.batch_weight, layer.eps, counts.to(layer.running_mean.scalar_type()));
  return {mean, invstd, counts.to(torch::kInt32)};
}

torch::Tensor normalise(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const BatchStatistics& batch,
                        double eps) {
  if (x.numel() == 0) return torch::empty_like(x);
  return at::batch_norm_elemt(x, weight, bias, batch.mean, batch.invstd, eps);
}

Gradients differentiate(const torch::Tensor& dy, const torch::Tensor& x, const torch::Tensor& weight, const BatchStatistics& batch,
                        bool needs_input, const distributed::ProcessGroup& group) {
  const int64_t num_channels = x.size(1);
  Gradients gradients;
  torch::Tensor sums;
  if (x.numel() > 0) {
    torch::Tensor sum_dy, sum_dy_xmu;
    std::tie(sum_dy, sum_dy_xmu, gradients.weight, gradients.bias) =
        at::batch_norm_backward_reduce(dy, x, batch.mean, batch.invstd, weight, /*input_g=*/true, /*weight_g=*/true, /*bias_g=*/true);
    sums = at::cat({sum_dy, sum_dy_xmu});
  } else {
    gradients = {{}, torch::zeros_like(weight), torch::zeros_like(weight)};
    sums = torch::zeros({2 * num_channels}, batch.mean.options());
  }
  if (!needs_input) return gradients;
  group.all_reduce(sums);
  gradients.input = x.numel() == 0 ? torch::empty_like(x)
                                   : at::batch_norm_backward_elemt(dy, x, batch.mean, batch.invstd, weight.to(batch.mean.scalar_type()),
                                                                   sums.narrow(0, 0, num_channels),
                                                                   sums.narrow(0, num_channels, num_channels), batch.count);
  return gradients;
}

}  // namespace fused

class Normalisation : public torch::autograd::Function<Normalisation> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                               const LayerState& layer) {
    const torch::Tensor x = input.contiguous(input.suggest_memory_format());
    const BatchStatistics batch = x.is_cuda() ? fused::join(x, layer) : composed::join(x, layer);
    context->save_for_backward({x, weight, batch.mean, batch.invstd, batch.count});
    context->saved_data["group"] = hold(layer.group);
    return x.is_cuda() ? fused::normalise(x, weight, bias, batch, layer.eps) : composed::normalise(x, weight, bias, batch);
  }

  static torch::autograd::variable_list backward(AutogradContext* context, const torch::autograd::variable_list& output_gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "batch normalisation over several ranks does not support second derivatives");
    const auto saved = context->get_saved_variables();
    const torch::Tensor& x = saved[0];
    const torch::Tensor& weight = saved[1];
    const auto group = held<distributed::ProcessGroup>(context->saved_data["group"]);
    const torch::Tensor dy = output_gradients[0].contiguous(x.suggest_memory_format());
    const auto differentiate = x.is_cuda() ? fused::differentiate : composed::differentiate;
    const Gradients gradients = differentiate(dy, x, weight, {saved[2], saved[3], saved[4]}, context->needs_input_grad(0), *group);
    const auto if_needed = [&](const torch::Tensor& gradient, size_t index) {
      return context->needs_input_grad(index) ? gradient : torch::Tensor();
    };
    return {gradients.input, if_needed(gradients.weight, 1), if_needed(gradients.bias, 2), torch::Tensor()};
  }
};

// The layers that convert_sync_batch_norm() has converted. A layer is found by its weight, or by its running mean if it has no weight,
// because LibTorch's layers call at::batch_norm directly with their tensors. The weak references prevent the addresses from being reused.
class ConvertedLayers {
 public:
  static ConvertedLayers& all() {
    static ConvertedLayers layers;
    return layers;
  }

  void add(const std::shared_ptr<torch::nn::Module>& module, const torch::Tensor& tensor, const GroupPtr& group) {
    const std::unique_lock lock(mutex_);
    std::erase_if(layers_, [](const auto& layer) { return layer.second.module.expired(); });
    layers_.insert_or_assign(tensor.unsafeGetTensorImpl(), Layer{WeakTensor(tensor.getIntrusivePtr()), module, group});
  }

  bool contains(const torch::nn::Module& layer) const {
    const std::shared_lock lock(mutex_);
    return std::ranges::any_of(layers_, [&](const auto& converted) { return converted.second.module.lock().get() == &layer; });
  }

  // Returns the group of the converted layer with this weight or running mean; null if there is none or the layer is in evaluation.
  GroupPtr find(const torch::Tensor& tensor) const {
    const std::shared_lock lock(mutex_);
    const auto found = layers_.find(tensor.unsafeGetTensorImpl());
    if (found == layers_.end()) return nullptr;
    const auto module = found->second.module.lock();
    if (!module || !module->is_training()) return nullptr;
    auto group = found->second.group.lock();
    TORCH_CHECK(group, "the process group of a batch normalisation no longer exists; keep its Context until training has finished");
    return group;
  }

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Layer {
    WeakTensor tensor;
    std::weak_ptr<torch::nn::Module> module;
    std::weak_ptr<const distributed::ProcessGroup> group;
  };

  // Replaces at::batch_norm at autograd's dispatch keys. Layers that were not converted use LibTorch's own function.
  ConvertedLayers() {
    for (const auto key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
      libraries_.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__).impl("batch_norm", &batch_norm);
    }
  }

  static torch::Tensor batch_norm(const torch::Tensor& input, const std::optional<torch::Tensor>& weight,
                                  const std::optional<torch::Tensor>& bias, const std::optional<torch::Tensor>& running_mean,
                                  const std::optional<torch::Tensor>& running_var, bool training, double momentum, double eps,
                                  bool cudnn_enabled) {
    const auto is_there = [](const std::optional<torch::Tensor>& tensor) { return tensor && tensor->defined(); };
    const auto& key = is_there(weight) ? weight : running_mean;
    const auto group = training && is_there(key) ? all().find(*key) : nullptr;
    if (!group) return at::native::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
    const auto or_else = [&](const std::optional<torch::Tensor>& tensor, double value) {
      return is_there(tensor) ? *tensor : torch::full({input.size(1)}, value, key->options().requires_grad(false));
    };
    return Normalisation::apply(input, or_else(weight, 1), or_else(bias, 0),
                                LayerState{group, or_else(running_mean, 0), or_else(running_var, 1), momentum, eps});
  }

  mutable std::shared_mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, Layer> layers_;
  std::vector<torch::Library> libraries_;
};

template <class Layer>
bool convert(const std::shared_ptr<torch::nn::Module>& module, const std::string& name, const GroupPtr& group) {
  const auto* layer = dynamic_cast<const Layer*>(module.get());
  if (layer == nullptr) return false;
  const auto& tensor = layer->weight.defined() ? layer->weight : layer->running_mean;
  if (!tensor.defined()) {
    throw UsageError(
        "the batch normalisation " + name +
        " has neither a weight nor running statistics, but one of them is needed to identify it; set affine or track_running_stats");
  }
  ConvertedLayers::all().add(module, tensor, group);
  return true;
}

}  // namespace

bool is_joined(const torch::nn::Module& layer) {
  const auto* own = dynamic_cast<const BatchNorm2d*>(&layer);
  return own != nullptr ? own->is_joined() : ConvertedLayers::all().contains(layer);
}

bool has_equal_buffers(const torch::nn::Module& model) {
  return std::ranges::all_of(model.modules(),
                             [](const auto& module) { return module->buffers(/*recurse=*/false).empty() || is_joined(*module); });
}

void convert_sync_batch_norm(torch::nn::Module& module, GroupPtr group) {
  if (!group) {
    throw UsageError(
        "the process group is null, which new_group() returns on ranks that are not members; call convert_sync_batch_norm() only on the "
        "members of its group");
  }
  if (group->size() == 1) return;
  const auto convert_one = [&](const std::shared_ptr<torch::nn::Module>& layer, const std::string& name) {
    return convert<torch::nn::BatchNorm1dImpl>(layer, name, group) || convert<torch::nn::BatchNorm2dImpl>(layer, name, group) ||
           convert<torch::nn::BatchNorm3dImpl>(layer, name, group);
  };
  if (const auto root = module.weak_from_this().lock()) convert_one(root, root->name());
  for (const auto& item : module.named_modules(/*name_prefix=*/{}, /*include_self=*/false)) convert_one(item.value(), item.key());
}

torch::Tensor normalise_over_ranks(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                                   const LayerState& layer) {
  TORCH_CHECK(x.dim() >= 2 && x.size(1) == weight.numel(), "batch normalisation of ", weight.numel(),
              " channels received an input of shape ", x.sizes());
  return Normalisation::apply(x, weight, bias, layer);
}

}  // namespace trainer::nn
