#pragma once
// Types of tensors as the kernels in this module see them, without LibTorch.

#include <cstdint>
#include <type_traits>

namespace trainer::nn {

struct BFloat16 {
  uint16_t bits;  // the upper half of a float
};

// The type that is computed with, for tensors of S: float, double or BFloat16.
template <class S>
using Computed = std::conditional_t<std::is_same_v<S, BFloat16>, float, S>;

}  // namespace trainer::nn
