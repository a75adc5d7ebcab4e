#include "data/sharded_sampler.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

#include "trainer/data.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

// For each position, the number of earlier occurrences of the same index.
std::vector<uint32_t> count_occurrences(const std::vector<int64_t>& order) {
  std::vector<uint32_t> occurrences, counts;
  for (const int64_t index : order) {
    if (static_cast<size_t>(index) >= counts.size()) counts.resize(static_cast<size_t>(index) + 1);
    occurrences.push_back(counts[static_cast<size_t>(index)]++);
  }
  return occurrences;
}

}  // namespace

ShardedSampler::ShardedSampler(Sampler sampler, ShardOptions options) : sampler_(std::move(sampler)), options_(options) {
  TORCH_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size, "rank ", options.rank,
              " is not valid in a world of ", options.world_size, " ranks");
}

SampleList ShardedSampler::samples_of(int rank, int64_t first) const {
  const auto order = sampler_.order(epoch_);
  const auto occurrences = sampler_.repeats ? count_occurrences(order) : std::vector<uint32_t>();
  const auto positions = positions_of(options_, rank, static_cast<int64_t>(order.size()), first);
  SampleList samples;
  samples.indices.reserve(positions.size());
  for (const size_t at : positions) {
    samples.indices.push_back(order[at]);
    if (!occurrences.empty()) samples.occurrences.push_back(occurrences[at]);
  }
  return samples;
}

std::vector<size_t> positions_of(const ShardOptions& options, int rank, int64_t num_samples, int64_t first) {
  const int64_t end = end_of_order(options.shards, num_samples, options.world_size, first);
  std::vector<size_t> positions;
  positions.reserve(static_cast<size_t>((end - first) / options.world_size + 1));
  for (int64_t position = first + rank; position < end; position += options.world_size) {
    positions.push_back(static_cast<size_t>(position % num_samples));
  }
  return positions;
}

int64_t end_of_order(data::Shards shards, int64_t num_samples, int world_size, int64_t first) {
  const int64_t left = std::max<int64_t>(num_samples - first, 0);
  switch (shards) {
    case data::Shards::kPad:
      return first + (left + world_size - 1) / world_size * world_size;
    case data::Shards::kDrop:
      return first + left / world_size * world_size;
    case data::Shards::kExact:
      return first + left;
  }
  return first;
}

// Implements the sampler for LibTorch's data loaders (trainer/data.h).

DistributedSampler::DistributedSampler(int64_t num_samples, int rank, int world_size, const DistributedSamplerOptions& options)
    : num_samples_(num_samples), rank_(rank), world_size_(world_size), options_(options) {
  TORCH_CHECK(world_size >= 1 && rank >= 0 && rank < world_size, "rank ", rank, " is not valid in a world of ", world_size, " ranks");
  set_positions();
}

void DistributedSampler::set_positions() {
  TORCH_CHECK(num_samples_ > 0, "a sampler needs at least one sample, but num_samples is ", num_samples_);
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
  TORCH_CHECK(num_skipped_ >= 0, "the number of skipped samples must not be negative, but is ", num_skipped_);
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
