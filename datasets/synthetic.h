#pragma once
// Random samples of any shape, for measurements, demonstrations and tests. They need no files and can be read very fast.

#include <memory>
#include <vector>

#include "datasets/dataset_registry.h"

namespace trainer::datasets {

enum class SyntheticLabels { kRandom, kZero };

struct SyntheticOptions {
  int64_t num_train = 1024;
  int64_t num_validation = 256;
  std::vector<int64_t> shape = {3, 32, 32};
  int64_t num_classes = 10;
  SyntheticLabels labels = SyntheticLabels::kRandom;
  int64_t num_targets = 1;
  int64_t seed = 0;
  void describe(KeyTable& keys);
};

data::DatasetInfo synthetic_info(const SyntheticOptions& options);

// Values, and targets if there are no classes, are uniform with mean 0 and variance 1. A sample depends only on (seed, split, index), so
// every rank and every read() gets the same one.
std::unique_ptr<data::Dataset> open_synthetic(const SyntheticOptions& options, data::Split split);

}  // namespace trainer::datasets
