#include "input/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

namespace trainer::input {

DistributedSampler::DistributedSampler(SamplerOptions options) : options_(options) {
  TORCH_CHECK(options.num_samples >= 0, "num_samples is ", options.num_samples);
  TORCH_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size, "rank ", options.rank, " of ",
              options.world_size);
}

std::vector<int64_t> DistributedSampler::indices() const {
  torch::Tensor order;
  if (options_.shuffle) {
    const auto generator = at::detail::createCPUGenerator(options_.seed + static_cast<uint64_t>(epoch_));
    order = torch::randperm(options_.num_samples, generator, torch::kLong);
  } else {
    order = torch::arange(options_.num_samples, torch::kLong);
  }
  const int64_t* order_data = order.const_data_ptr<int64_t>();
  std::vector<int64_t> indices(static_cast<size_t>(num_samples_per_rank()));
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t position = options_.rank + static_cast<int64_t>(i) * options_.world_size;
    indices[i] = order_data[position % options_.num_samples];
  }
  return indices;
}

int64_t DistributedSampler::num_samples_per_rank() const {
  const int64_t world_size = options_.world_size;
  const int64_t rounded_up = (options_.num_samples + world_size - 1) / world_size;
  switch (options_.shards) {
    case config::Shards::kPad:
      return rounded_up;
    case config::Shards::kDrop:
      return options_.num_samples / world_size;
    case config::Shards::kExact:
      return options_.rank < options_.num_samples - (rounded_up - 1) * world_size ? rounded_up : rounded_up - 1;
  }
  return 0;
}

}  // namespace trainer::input
