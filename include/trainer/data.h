#pragma once
// Data of own training loops: DistributedSampler chooses the samples of a rank, like torch.utils.data.distributed.DistributedSampler, for
// LibTorch's data loaders or for Batches, the program's.

#include <torch/data/example.h>
#include <torch/data/samplers/base.h>
#include <torch/serialize.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/component.h"
#include "trainer/dataset.h"
#include "trainer/error.h"
#include "trainer/options.h"

namespace trainer::data {

// Each rank takes every world_size-th sample of an order that all ranks share; with `shuffle`, a permutation with the seed `seed` + epoch,
// the same as in Python. torch::data::make_data_loader() copies the sampler, so for each epoch call set_epoch() and make a new loader. Not
// thread-safe.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  DistributedSampler(int64_t num_samples, int rank, int world_size, const DistributedSamplerOptions& options = {});

  // Sets the epoch whose order is used from the next reset() on; a data loader calls reset() in begin().
  void set_epoch(int64_t epoch) { epoch_ = epoch; }
  int64_t epoch() const { return epoch_; }
  // To resume within an epoch: the next reset() skips this many of this rank's samples.
  void skip(int64_t num_samples) { num_skipped_ = num_samples; }
  // The number of this rank's samples in an epoch.
  int64_t size() const { return static_cast<int64_t>(positions_.size()); }

  // `new_size`: if given, the new number of samples in the data set.
  void reset(std::optional<size_t> new_size = {}) override;
  // The next samples, at most `batch_size`; empty at the end of the epoch.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  // Saves the epoch and the position of next(). A data loader with workers calls next() ahead of the batches that it returns, so the saved
  // position is then too far.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void set_positions();

  int64_t num_samples_;
  int rank_;
  int world_size_;
  DistributedSamplerOptions options_;
  int64_t epoch_ = 0;
  int64_t num_skipped_ = 0;
  std::vector<size_t> positions_;  // of this rank's samples, in the order that all ranks share
  std::vector<size_t> samples_;
  size_t position_ = 0;
};

// The batches of a data set for own training loops: read, transformed and put together by the threads of `loading`, as in the program. Not
// thread-safe.
class Batches {
 public:
  // `transforms`: components of transform_registry(). The numbers of random transforms depend on `seed`, the epoch and the sample, not on
  // ranks and threads. Throws UsageError for transforms that cannot be applied to the samples.
  Batches(std::shared_ptr<const Dataset> dataset, const std::vector<ComponentConfig>& transforms, int64_t batch_size, uint64_t seed = 0,
          const LoadingOptions& loading = {});
  ~Batches();
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  // Starts an epoch over the samples of the sampler, which must have been made for this data set.
  void start(DistributedSampler& sampler);
  // The next batch, on the CPU: images or values in float32 [n, ...], and targets as in nn::Loss, numbers in float64, which LibTorch's own
  // losses need converted to the type of the outputs. The last batch of an epoch may be smaller; empty at its end. Throws DataError for a
  // sample that cannot be read, with its name.
  std::optional<torch::data::Example<>> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer::data
