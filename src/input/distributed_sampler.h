#pragma once
// The samples of a rank in an epoch and their order: the same lists as torch.utils.data.DistributedSampler's, index for index
// (pytorch/torch/utils/data/distributed.py), plus one more way to distribute a number of samples that world_size does not divide.

#include <cstdint>
#include <vector>

#include "config/sections/dataloader.h"

namespace trainer::input {

struct SamplerOptions {
  int64_t num_samples = 0;  // of the whole data set
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  // When world_size does not divide num_samples: padded with the head of the list, cut, or unchanged, so that the first ranks have one
  // more.
  config::Shards shards = config::Shards::kPad;
  uint64_t seed = 0;
};

// The end (exclusive) of the order that all ranks share when they use it from position `first` on: padded, cut, or unchanged.
int64_t end_of_order(config::Shards shards, int64_t num_samples, int world_size, int64_t first = 0);

class DistributedSampler {
 public:
  explicit DistributedSampler(SamplerOptions options);
  // The permutation is a function of seed + epoch.
  void set_epoch(int64_t epoch) { epoch_ = epoch; }
  // This rank's indices in the current epoch. With `first`: its part of the shared order from that position on, for an epoch whose
  // beginning was already trained on, possibly by other ranks.
  std::vector<int64_t> indices(int64_t first = 0) const;

 private:
  SamplerOptions options_;
  int64_t epoch_ = 0;
};

}  // namespace trainer::input
