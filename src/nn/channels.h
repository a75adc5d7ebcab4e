#pragma once

#include <cstdint>
#include <type_traits>

namespace trainer::nn {

// The kernels of this module take numbers of channels that are multiples of this, the widest vector that all of them use whole.
inline constexpr int64_t kChannels = 8;

// Types of tensors as the kernels in this module see them, without LibTorch.

struct BFloat16 {
  uint16_t bits;  // the upper half of a float
};

// The type that is computed with, for tensors of S: float, double or BFloat16.
template <class S>
using Computed = std::conditional_t<std::is_same_v<S, BFloat16>, float, S>;

}  // namespace trainer::nn
