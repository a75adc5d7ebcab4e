#include "nn/sync_batch_norm.h"

#include <c10/util/StringUtil.h>

#include <utility>

#include "base/error.h"
#include "nn/batch_norm_cpu.h"
#include "nn/layer_observer.h"

namespace trainer::nn {
namespace {

using torch::autograd::AutogradContext;
using GroupPtr = std::shared_ptr<const distributed::ProcessGroup>;

// The state of a layer that one forward pass uses.
struct LayerState {
  GroupPtr group;
  torch::Tensor running_mean, running_var;
  double batch_weight;
  double eps;
};

// Statistics of the joined batch, [C]. `counts`: values per channel; on the CPU the total of all ranks, on CUDA one int32 per rank.
struct Statistics {
  torch::Tensor mean, invstd, counts;
};

// Gradients of this rank's part of the batch; `weight` and `bias` are [C], `input` is undefined if it is not needed.
struct Gradients {
  torch::Tensor input, weight, bias;
};

void check_count(double count, const torch::Tensor& x, const distributed::ProcessGroup& group) {
  if (count >= 2) return;
  throw UsageError(c10::str("batch normalisation cannot train on less than two values per channel over all ", group.size(),
                            " ranks together (its input here is ", x.sizes(), "); use a larger dataloader.batch_size or larger images"));
}

// The CPU implementation.
namespace composed {

void track(const torch::Tensor& running, const torch::Tensor& value, double weight) {
  running.copy_(at::lerp(running.to(torch::kFloat64), value, weight));
}

Statistics join(const torch::Tensor& x, const LayerState& layer) {
  const int64_t num_channels = x.size(1);
  const torch::Tensor total = merge_channel_moments(layer.group->all_gather(channel_moments(x)));
  const torch::Tensor mean = total.narrow(0, 0, num_channels);
  const torch::Tensor squares = total.narrow(0, num_channels, num_channels);
  const torch::Tensor count = total.narrow(0, 2 * num_channels, 1);
  const auto num_values = count.item<double>();
  check_count(num_values, x, *layer.group);
  track(layer.running_mean, mean, layer.batch_weight);
  track(layer.running_var, squares / (num_values - 1), layer.batch_weight);
  return {mean, (squares / num_values + layer.eps).rsqrt(), count};
}

torch::Tensor normalise(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const Statistics& batch) {
  return scale_channels(x, batch.mean, batch.invstd * weight, bias.to(torch::kFloat64));
}

Gradients differentiate(const torch::Tensor& dy, const torch::Tensor& x, const torch::Tensor& weight, const Statistics& batch,
                        bool needs_input, const distributed::ProcessGroup& group) {
  const torch::Tensor sums = channel_gradient_sums(dy, x, batch.mean);
  const torch::Tensor sum_dy = sums.narrow(0, 0, x.size(1));
  const torch::Tensor sum_dy_xmu = sums.narrow(0, x.size(1), x.size(1));
  Gradients gradients;
  gradients.weight = (sum_dy_xmu * batch.invstd).to(weight.scalar_type());
  gradients.bias = sum_dy.to(weight.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  if (!needs_input) return gradients;
  group.sum_in_rank_order({&sums, 1});
  // dx = (dy − mean of dy − (x − mean) · invstd² · mean of dy (x − mean)) · invstd · weight
  const torch::Tensor dy_scale = batch.invstd * weight;
  const torch::Tensor mean_scale = dy_scale.neg() / batch.counts;
  gradients.input = combine_channels(dy, dy_scale, x, batch.mean, mean_scale * batch.invstd.square() * sum_dy_xmu, mean_scale * sum_dy);
  return gradients;
}

}  // namespace composed

// The CUDA implementation, as in torch/nn/modules/_functions.py of PyTorch.
namespace fused {

int64_t num_values(const torch::Tensor& x) { return x.numel() / x.size(1); }

// Returns [2C + 1]: mean and invstd of this rank's part, and its number of values per channel.
torch::Tensor local_statistics(const torch::Tensor& x, double eps) {
  const int64_t num_channels = x.size(1);
  const torch::Dtype dtype = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  torch::Tensor local = torch::ones({2 * num_channels + 1}, x.options().dtype(dtype));
  if (x.numel() > 0) {
    const auto [mean, invstd] = at::batch_norm_stats(x, eps);
    local.narrow(0, 0, num_channels).copy_(mean);
    local.narrow(0, num_channels, num_channels).copy_(invstd);
  }
  local.narrow(0, 2 * num_channels, 1).fill_(num_values(x));
  return local;
}

Statistics join(const torch::Tensor& x, const LayerState& layer) {
  const int64_t num_channels = x.size(1);
  torch::Tensor all = layer.group->all_gather(local_statistics(x, layer.eps));
  // Empty parts are sorted last because the kernel divides by the running count. Python drops them, which must wait for the device.
  all = all.index_select(0, at::argsort(all.select(1, 2 * num_channels), /*stable=*/true, /*dim=*/0, /*descending=*/true));
  const torch::Tensor counts = all.select(1, 2 * num_channels).contiguous();
  // Two values on this rank are enough; the sum over all ranks would wait for the device.
  if (num_values(x) < 2) check_count(counts.sum().item<double>(), x, *layer.group);
  const auto [mean, invstd] = at::batch_norm_gather_stats_with_counts(
      x, all.narrow(1, 0, num_channels), all.narrow(1, num_channels, num_channels), layer.running_mean, layer.running_var,
      layer.batch_weight, layer.eps, counts.to(layer.running_mean.scalar_type()));
  return {mean, invstd, counts.to(torch::kInt32)};
}

torch::Tensor normalise(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const Statistics& batch,
                        double eps) {
  if (x.numel() == 0) return torch::empty_like(x);
  return at::batch_norm_elemt(x, weight, bias, batch.mean, batch.invstd, eps);
}

Gradients differentiate(const torch::Tensor& dy, const torch::Tensor& x, const torch::Tensor& weight, const Statistics& batch,
                        bool needs_input, const distributed::ProcessGroup& group) {
  const int64_t num_channels = x.size(1);
  Gradients gradients{{}, torch::zeros_like(weight), torch::zeros_like(weight)};
  torch::Tensor sums = torch::zeros({2 * num_channels}, batch.mean.options());
  if (x.numel() > 0) {
    torch::Tensor sum_dy, sum_dy_xmu;
    std::tie(sum_dy, sum_dy_xmu, gradients.weight, gradients.bias) =
        at::batch_norm_backward_reduce(dy, x, batch.mean, batch.invstd, weight, /*input_g=*/true, /*weight_g=*/true, /*bias_g=*/true);
    sums = at::cat({sum_dy, sum_dy_xmu});
  }
  if (!needs_input) return gradients;
  group.all_reduce(sums);
  gradients.input = x.numel() == 0 ? torch::empty_like(x)
                                   : at::batch_norm_backward_elemt(dy, x, batch.mean, batch.invstd, weight.to(batch.mean.scalar_type()),
                                                                   sums.narrow(0, 0, num_channels),
                                                                   sums.narrow(0, num_channels, num_channels), batch.counts);
  return gradients;
}

}  // namespace fused

struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(GroupPtr held) : group(std::move(held)) {}
  GroupPtr group;
};

class Normalisation : public torch::autograd::Function<Normalisation> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                               const LayerState& layer) {
    const torch::Tensor x = input.contiguous(input.suggest_memory_format());
    const Statistics batch = x.is_cuda() ? fused::join(x, layer) : composed::join(x, layer);
    context->save_for_backward({x, weight, batch.mean, batch.invstd, batch.counts});
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(layer.group));
    return x.is_cuda() ? fused::normalise(x, weight, bias, batch, layer.eps) : composed::normalise(x, weight, bias, batch);
  }

  static torch::autograd::variable_list backward(AutogradContext* context, const torch::autograd::variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor& x = saved[0];
    const torch::Tensor& weight = saved[1];
    const auto holder = c10::static_intrusive_pointer_cast<GroupHolder>(context->saved_data["group"].toCapsule());
    const torch::Tensor dy = output_gradients[0].contiguous(x.suggest_memory_format());
    const auto differentiate = x.is_cuda() ? fused::differentiate : composed::differentiate;
    const Gradients gradients = differentiate(dy, x, weight, {saved[2], saved[3], saved[4]}, context->needs_input_grad(0), *holder->group);
    const auto if_needed = [&](const torch::Tensor& gradient, size_t index) {
      return context->needs_input_grad(index) ? gradient : torch::Tensor();
    };
    return {gradients.input, if_needed(gradients.weight, 1), if_needed(gradients.bias, 2), torch::Tensor()};
  }
};

}  // namespace

SyncBatchNorm::SyncBatchNorm(int64_t num_channels, GroupPtr group, double eps, std::optional<double> momentum)
    : BatchNorm2d(num_channels, eps, momentum), group_(std::move(group)) {}

torch::Tensor SyncBatchNorm::forward(const torch::Tensor& x) {
  if (!is_training() || group_->size() == 1) return BatchNorm2d::forward(x);
  TORCH_CHECK(x.dim() >= 2 && x.size(1) == weight.numel(), "batch normalisation of ", weight.numel(), " channels got an input of ",
              x.sizes());
  torch::Tensor y = Normalisation::apply(x, weight, bias, LayerState{group_, running_mean, running_var, next_batch_weight(), eps()});
  count_batch();
  return observed(*this, y);
}

NormFactory sync_batch_norm(std::shared_ptr<const distributed::ProcessGroup> group) {
  return [group = std::move(group)](int64_t num_channels) { return std::make_shared<SyncBatchNorm>(num_channels, group); };
}

}  // namespace trainer::nn
