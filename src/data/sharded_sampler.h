#pragma once
// The samples of a rank in an epoch, in order. Each rank uses every world_size-th sample of an order that all ranks share, as in
// torch.utils.data.DistributedSampler (pytorch/torch/utils/data/distributed.py), with one additional mode for a number of samples that
// world_size does not divide.

#include <cstdint>
#include <vector>

#include "data/dataset.h"
#include "data/samplers/sampler.h"
#include "trainer/options.h"

namespace trainer::data {

struct ShardOptions {
  int rank = 0;
  int world_size = 1;
  // If world_size does not divide num_samples, kPad repeats samples from the start of the order, kDrop drops the last samples, and kExact
  // keeps all samples, so that the first ranks have one more.
  data::Shards shards = data::Shards::kPad;
};

// Returns the end (exclusive) of the part of the shared order that the ranks use. The part begins at position `first`; its end depends on
// `shards`.
int64_t end_of_order(data::Shards shards, int64_t num_samples, int world_size, int64_t first = 0);

// Returns the positions that `rank` uses in an order of `num_samples` from position `first` on; options.rank is ignored.
std::vector<size_t> positions_of(const ShardOptions& options, int rank, int64_t num_samples, int64_t first = 0);

class ShardedSampler {
 public:
  ShardedSampler(Sampler sampler, ShardOptions options);
  int rank() const { return options_.rank; }
  void set_epoch(int64_t epoch) { epoch_ = epoch; }
  // Returns this rank's samples of the current epoch. If `first` > 0, returns its share of the rest of the epoch, which begins at position
  // `first` of the shared order; the samples before that position have already been used. Occurrences are counted in the shared order; a
  // sample that kPad repeats has the same occurrence as the original.
  SampleList samples(int64_t first = 0) const { return samples_of(options_.rank, first); }
  // The samples of another rank.
  SampleList samples_of(int rank, int64_t first = 0) const;

 private:
  Sampler sampler_;
  ShardOptions options_;
  int64_t epoch_ = 0;
};

}  // namespace trainer::data
