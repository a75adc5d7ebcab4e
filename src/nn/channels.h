#pragma once

#include <cstdint>

namespace trainer::nn {

// The kernels of this module take numbers of channels that are multiples of this, the widest vector that all of them use whole.
inline constexpr int64_t kChannels = 8;

}  // namespace trainer::nn
