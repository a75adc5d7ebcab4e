#include "input/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <algorithm>

namespace trainer::input {

DistributedSampler::DistributedSampler(SamplerOptions options) : options_(options) {
  TORCH_CHECK(options.num_samples >= 0, "num_samples is ", options.num_samples);
  TORCH_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size, "rank ", options.rank, " of ",
              options.world_size);
}

DistributedSampler DistributedSampler::of_rank(int rank) const {
  auto options = options_;
  options.rank = rank;
  DistributedSampler sampler(options);
  sampler.set_epoch(epoch_);
  return sampler;
}

std::vector<int64_t> DistributedSampler::indices(int64_t first) const {
  torch::Tensor order;
  if (options_.shuffle) {
    const auto generator = at::detail::createCPUGenerator(options_.seed + static_cast<uint64_t>(epoch_));
    order = torch::randperm(options_.num_samples, generator, torch::kLong);
  } else {
    order = torch::arange(options_.num_samples, torch::kLong);
  }
  const int64_t* order_data = order.const_data_ptr<int64_t>();
  const int64_t end = end_of_order(options_.shards, options_.num_samples, options_.world_size, first);
  std::vector<int64_t> indices;
  indices.reserve(static_cast<size_t>((end - first) / options_.world_size + 1));
  for (int64_t position = first + options_.rank; position < end; position += options_.world_size) {
    indices.push_back(order_data[position % options_.num_samples]);
  }
  return indices;
}

int64_t end_of_order(config::Shards shards, int64_t num_samples, int world_size, int64_t first) {
  const int64_t left = std::max<int64_t>(num_samples - first, 0);
  switch (shards) {
    case config::Shards::kPad:
      return first + (left + world_size - 1) / world_size * world_size;
    case config::Shards::kDrop:
      return first + left / world_size * world_size;
    case config::Shards::kExact:
      return first + left;
  }
  return first;
}

}  // namespace trainer::input
