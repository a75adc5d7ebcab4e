#pragma once
// Which samples a rank takes in an epoch, in which order: the lists of torch.utils.data.DistributedSampler, index for index
// (pytorch/torch/utils/data/distributed.py), and one more way to share what cannot be shared evenly.

#include <cstdint>
#include <vector>

#include "config/sections/dataloader.h"

namespace trainer::input {

struct SamplerOptions {
  int64_t num_samples = 0;  // of the whole data set
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  // When world_size does not divide num_samples: padded with the list's head, cut, or as it is, so that the first ranks have one more.
  config::Shards shards = config::Shards::kPad;
  uint64_t seed = 0;
};

// The order that all ranks share ends before this position, where they take it from position `first` on: padded, cut, or as it is.
int64_t end_of_order(config::Shards shards, int64_t num_samples, int world_size, int64_t first = 0);

class DistributedSampler {
 public:
  explicit DistributedSampler(SamplerOptions options);
  // The permutation is a function of seed + epoch.
  void set_epoch(int64_t epoch) { epoch_ = epoch; }
  // This rank's indices of the epoch that was set; of what is left of it from position `first` of the shared order on, where other ranks
  // have taken the beginning.
  std::vector<int64_t> indices(int64_t first = 0) const;

 private:
  SamplerOptions options_;
  int64_t epoch_ = 0;
};

}  // namespace trainer::input
