#pragma once
// Samplers, which choose the samples of an epoch and their order, and their registry. New samplers belong in samplers.cpp.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "trainer/component.h"

namespace trainer::data {

struct Sampler {
  int64_t num_samples = 0;  // the length of the order, which is the same in every epoch
  // The order of an epoch, the same on all ranks: indices in the training set, as a function of seed and epoch.
  std::function<std::vector<int64_t>(int64_t epoch)> order;
  bool repeats = false;  // whether the order may contain a sample more than once
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
using SamplerRegistry = Registry<Sampler, const SamplerContext&>;

SamplerRegistry& sampler_registry();

// The result of torch.randperm(count) with the given seed in PyTorch 2.11 on a CPU.
std::vector<int64_t> draw_permutation(int64_t count, uint64_t seed);

}  // namespace trainer::data
