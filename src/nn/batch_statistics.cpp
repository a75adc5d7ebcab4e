#include "nn/batch_statistics.h"

#include <c10/util/StringUtil.h>
#include <torch/torch.h>

#include <utility>

#include "trainer/error.h"

namespace trainer::nn {
namespace {

struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(std::shared_ptr<const distributed::ProcessGroup> held) : group(std::move(held)) {}
  std::shared_ptr<const distributed::ProcessGroup> group;
};

}  // namespace

void check_count(double count, at::IntArrayRef input_sizes, const distributed::ProcessGroup& group) {
  if (count >= 2) return;
  throw UsageError(c10::str(
      "batch normalisation cannot train on less than two values per channel over all ", group.size(), " ranks together (its input here is ",
      input_sizes,
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

c10::IValue hold_group(std::shared_ptr<const distributed::ProcessGroup> group) {
  return c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(std::move(group)));
}

std::shared_ptr<const distributed::ProcessGroup> held_group(const c10::IValue& value) {
  return c10::static_intrusive_pointer_cast<GroupHolder>(value.toCapsule())->group;
}

}  // namespace trainer::nn
