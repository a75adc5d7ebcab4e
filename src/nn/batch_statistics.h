#pragma once
// Mean and variance of a batch that is divided among threads and ranks, computed on the CPU in float64.

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <memory>

#include "trainer/distributed.h"

namespace trainer::nn {

// Of each channel of the joined batch, [C]. `count`: values per channel; on the CPU the total of all ranks, on CUDA one int32 per rank.
struct BatchStatistics {
  torch::Tensor mean, invstd, count;
};

// Joins parts of a batch, [parts, 2C + 1]: of each part the mean and the biased variance of each channel, and the number of values per
// channel. Returns [2C + 1]. The order of the sums is that of the parts.
torch::Tensor merge_moments(const torch::Tensor& parts);

// The statistics of the joined batch of the group's ranks from the moments [2C + 1] of this rank's part; updates the running statistics.
// Collective if `group` is not null. Throws UsageError on all ranks if a channel has fewer than two values; `input_sizes` is for the
// message.
BatchStatistics join_statistics(const torch::Tensor& moments, const torch::Tensor& running_mean, const torch::Tensor& running_var,
                                double batch_weight, double eps, const distributed::ProcessGroup* group, at::IntArrayRef input_sizes);

void check_count(double count, at::IntArrayRef input_sizes, const distributed::ProcessGroup& group);

// A group, possibly null, among the saved values of an autograd function.
c10::IValue hold_group(std::shared_ptr<const distributed::ProcessGroup> group);
std::shared_ptr<const distributed::ProcessGroup> held_group(const c10::IValue& value);

}  // namespace trainer::nn
