#pragma once

#include <cstdint>

namespace trainer::session {

// Independent streams of random numbers under the one seed of the configuration.
enum RandomStream : uint64_t { kInitStream = 1, kAugmentStream, kSplitStream };

}  // namespace trainer::session
