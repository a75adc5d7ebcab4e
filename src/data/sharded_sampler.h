#pragma once
// The samples of a rank in an epoch, in order: each rank takes every world_size-th of the order that all share, as with
// torch.utils.data.DistributedSampler (pytorch/torch/utils/data/distributed.py), plus one more mode for a number of samples that world_size
// does not divide.

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/samplers/sampler.h"
#include "trainer/options.h"

namespace trainer::data {

struct ShardOptions {
  int rank = 0;
  int world_size = 1;
  // When world_size does not divide num_samples: kPad repeats samples from the start of the order, kDrop drops the last ones, kExact keeps
  // all, so that the first ranks have one more.
  data::Shards shards = data::Shards::kPad;
};

// The end (exclusive) of the order that all ranks share, if they use it from position `first` on; it depends on `shards`.
int64_t end_of_order(data::Shards shards, int64_t num_samples, int world_size, int64_t first = 0);

// The positions of an order of `num_samples` that `rank` takes, in place of options.rank, from position `first` on.
std::vector<size_t> positions_of(const ShardOptions& options, int rank, int64_t num_samples, int64_t first = 0);

class ShardedSampler {
 public:
  ShardedSampler(std::unique_ptr<const Sampler> sampler, ShardOptions options);
  int rank() const { return options_.rank; }
  void set_epoch(int64_t epoch) { epoch_ = epoch; }
  // This rank's samples of the epoch that was set. `first` > 0: its share of the rest of the epoch, from that position of the shared order
  // on, when the samples before it are already used. Occurrences are counted in the shared order; what kPad repeats counts as the sample
  // that it repeats.
  SampleList samples(int64_t first = 0) const { return samples_of(options_.rank, first); }
  // Those of another rank.
  SampleList samples_of(int rank, int64_t first = 0) const;

 private:
  std::unique_ptr<const Sampler> sampler_;
  ShardOptions options_;
  int64_t epoch_ = 0;
};

}  // namespace trainer::data
