// The library's sampler for LibTorch's data loaders: trainer/data.h.

#include <numeric>

#include "data/samplers/draws.h"
#include "data/sharded_sampler.h"
#include "trainer/data.h"
#include "trainer/error.h"

namespace trainer::data {

DistributedSampler::DistributedSampler(int64_t num_samples, int rank, int world_size, const DistributedSamplerOptions& options)
    : num_samples_(num_samples), rank_(rank), world_size_(world_size), options_(options) {
  TORCH_CHECK(world_size >= 1 && rank >= 0 && rank < world_size, "rank ", rank, " of ", world_size);
  set_positions();
}

void DistributedSampler::set_positions() {
  TORCH_CHECK(num_samples_ > 0, "a sampler of ", num_samples_, " samples");
  positions_ = data::positions_of({.rank = rank_, .world_size = world_size_, .shards = options_.shards}, rank_, num_samples_);
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  if (new_size) {
    num_samples_ = static_cast<int64_t>(*new_size);
    set_positions();
  }
  std::vector<int64_t> order(static_cast<size_t>(num_samples_));
  if (options_.shuffle) {
    order = data::draw_permutation(num_samples_, options_.seed + static_cast<uint64_t>(epoch_));
  } else {
    std::iota(order.begin(), order.end(), int64_t{0});
  }
  samples_.clear();
  for (const size_t at : positions_) samples_.push_back(static_cast<size_t>(order[at]));
  TORCH_CHECK(num_skipped_ >= 0, "skip(", num_skipped_, ")");
  position_ = static_cast<size_t>(std::min(num_skipped_, size()));
  num_skipped_ = 0;
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  const size_t end = std::min(samples_.size(), position_ + batch_size);
  if (position_ == end) return std::nullopt;
  std::vector<size_t> batch(samples_.begin() + static_cast<int64_t>(position_), samples_.begin() + static_cast<int64_t>(end));
  position_ = end;
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", torch::tensor(epoch_), /*is_buffer=*/true);
  archive.write("position", torch::tensor(samples_.empty() ? num_skipped_ : static_cast<int64_t>(position_)), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor epoch, position;
  archive.read("epoch", epoch, /*is_buffer=*/true);
  archive.read("position", position, /*is_buffer=*/true);
  epoch_ = epoch.item<int64_t>();
  num_skipped_ = position.item<int64_t>();
}

}  // namespace trainer::data
