#pragma once
// The interface of samplers, which choose the samples of an epoch and their order, and their registry. New samplers belong in samplers.cpp.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "trainer/component.h"

namespace trainer::data {

class Sampler {
 public:
  virtual ~Sampler() = default;
  // The length of the order, which is the same in every epoch.
  virtual int64_t num_samples() const = 0;
  // Whether the order may contain a sample more than once.
  virtual bool repeats() const { return false; }
  // The order of an epoch, the same on all ranks: indices in the training set, as a function of seed and epoch.
  virtual std::vector<int64_t> order(int64_t epoch) const = 0;
};

// Base class of the structs in samplers.cpp that hold the keys of a sampler.
struct SamplerOptions {
  // Whether the sampler needs a data set with classes.
  virtual bool needs_classes() const { return false; }
  // The file whose content determines the draws; empty if there is none.
  virtual std::string file() const { return ""; }
};

// The arguments from which samplers are made; needed only during the call that makes one.
struct SamplerContext {
  const Dataset& dataset;  // the training set
  const Dataset& files;    // the training set before a part of it was held out
  uint64_t seed = 0;       // the seed of the configuration
  // Returns the place and path of a key of the sampler, for the beginning of a message.
  std::function<std::string(const std::string& key)> place_of = [](const std::string& key) { return key; };
};

// The functions that make samplers throw UsageError or DataError if the options do not fit the data.
using SamplerRegistry = Registry<std::unique_ptr<Sampler>, const SamplerContext&>;

SamplerRegistry& sampler_registry();

// The random draws of the samplers, which are the same as in PyTorch 2.11 with a CPU generator.

// Adds the key num_samples, for samplers that draw by weight.
void describe_num_samples(KeyTable& keys, std::optional<int64_t>& num_samples);

// Throws UsageError if the training set is too large for weighted draws.
void check_can_be_weighted(const SamplerContext& context);

// Returns the result of torch.randperm(count) with the given seed.
std::vector<int64_t> draw_permutation(int64_t count, uint64_t seed);

struct WeightedDraws {
  std::vector<double> weights;  // one for each sample of the training set, finite and at least 0
  int64_t num_samples = 0;
  bool replacement = true;
};

// Draws like torch.utils.data.WeightedRandomSampler (pytorch/torch/utils/data/sampler.py) with a generator seeded with seed + epoch in each
// epoch. Throws UsageError if there are too few samples for draws without replacement.
std::unique_ptr<Sampler> make_weighted_sampler(WeightedDraws draws, const SamplerContext& context);

}  // namespace trainer::data
