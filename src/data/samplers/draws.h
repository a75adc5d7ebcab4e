#pragma once
// The random draws of the samplers, index by index those of PyTorch 2.11 with a CPU generator.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/samplers/sampler.h"

namespace trainer::data {

// The key num_samples of samplers that draw.
void describe_num_samples(KeyTable& keys, std::optional<int64_t>& num_samples);

// Throws UsageError if the training set is too large for weights.
void check_can_be_weighted(const SamplerContext& context);

// What torch.randperm(count) gives with the seed `seed`.
std::vector<int64_t> draw_permutation(int64_t count, uint64_t seed);

struct WeightedDraws {
  std::vector<double> weights;  // of each sample of the training set, finite and at least 0
  int64_t num_samples = 0;
  bool replacement = true;
};

// Draws as torch.utils.data.WeightedRandomSampler (pytorch/torch/utils/data/sampler.py), whose generator has the seed seed + epoch in each
// epoch. Throws UsageError if there are too few samples for draws without replacement.
std::unique_ptr<Sampler> make_weighted_sampler(WeightedDraws draws, const SamplerContext& context);

}  // namespace trainer::data
