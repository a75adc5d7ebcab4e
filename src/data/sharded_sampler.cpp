#include "data/sharded_sampler.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace trainer::data {
namespace {

// How often each index comes before its position.
std::vector<uint32_t> count_occurrences(const std::vector<int64_t>& order) {
  std::vector<uint32_t> occurrences, counts;
  for (const int64_t index : order) {
    if (static_cast<size_t>(index) >= counts.size()) counts.resize(static_cast<size_t>(index) + 1);
    occurrences.push_back(counts[static_cast<size_t>(index)]++);
  }
  return occurrences;
}

}  // namespace

ShardedSampler::ShardedSampler(std::unique_ptr<const Sampler> sampler, ShardOptions options)
    : sampler_(std::move(sampler)), options_(options) {
  TORCH_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size, "rank ", options.rank, " of ",
              options.world_size);
}

SampleList ShardedSampler::samples_of(int rank, int64_t first) const {
  const auto order = sampler_->order(epoch_);
  const auto occurrences = sampler_->repeats() ? count_occurrences(order) : std::vector<uint32_t>();
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

}  // namespace trainer::data
