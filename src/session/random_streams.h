#pragma once

#include "config/experiment.h"
#include "trainer/random.h"

namespace trainer::session {

// Independent streams of random numbers from the seed of the configuration.
enum RandomStream : uint64_t { kInitStream = 1, kAugmentStream, kSplitStream, kBatchMixStream };

// The seed of the random transforms of all samples.
inline uint64_t augmentation_seed(const config::Experiment& experiment) {
  return mix_seed(static_cast<uint64_t>(experiment.seed), kAugmentStream);
}

}  // namespace trainer::session
