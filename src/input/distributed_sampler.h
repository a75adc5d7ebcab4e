#pragma once
// The samples of a rank in an epoch, in order: the same indices as torch.utils.data.DistributedSampler
// (pytorch/torch/utils/data/distributed.py), plus one more mode for a number of samples that world_size does not divide.

#include <cstdint>
#include <vector>

#include "config/sections/dataloader.h"

namespace trainer::input {

struct SamplerOptions {
  int64_t num_samples = 0;  // of the whole data set
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  // When world_size does not divide num_samples: kPad repeats samples from the start of the order, kDrop drops the last ones, kExact keeps
  // all, so that the first ranks have one more.
  config::Shards shards = config::Shards::kPad;
  uint64_t seed = 0;
};

// The end (exclusive) of the order that all ranks share, if they use it from position `first` on; it depends on `shards`.
int64_t end_of_order(config::Shards shards, int64_t num_samples, int world_size, int64_t first = 0);

class DistributedSampler {
 public:
  explicit DistributedSampler(SamplerOptions options);
  int rank() const { return options_.rank; }
  // The sampler of another rank, in the same epoch.
  DistributedSampler of_rank(int rank) const;
  // The permutation is a function of seed + epoch.
  void set_epoch(int64_t epoch) { epoch_ = epoch; }
  // This rank's indices of the epoch that was set. `first` > 0: its share of the rest of the epoch, from that position of the shared order
  // on, when the samples before it are already used.
  std::vector<int64_t> indices(int64_t first = 0) const;

 private:
  SamplerOptions options_;
  int64_t epoch_ = 0;
};

}  // namespace trainer::input
