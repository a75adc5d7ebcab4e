#pragma once

#include <cstdint>
#include <type_traits>

namespace trainer::nn {

// The kernels of this module support numbers of channels that are multiples of this, the widest vector that all of them fill completely.
inline constexpr int64_t kChannels = 8;

// Element types for the kernels in this module, which do not use LibTorch.

struct BFloat16 {
  uint16_t bits;  // the upper half of a float
};

// The type in which results for tensors of S (float, double or BFloat16) are computed.
template <class S>
using Computed = std::conditional_t<std::is_same_v<S, BFloat16>, float, S>;

}  // namespace trainer::nn
