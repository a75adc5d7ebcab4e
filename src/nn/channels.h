#pragma once

#include <cstdint>
#include <type_traits>

namespace trainer::nn {

// The kernels of this module compute whole vectors of channels. Those of convolutions with a single group need a number of channels that is
// a multiple of kChannels, those of normalisation and of depthwise convolutions a multiple of kFewestChannels.
inline constexpr int64_t kChannels = 8;
inline constexpr int64_t kFewestChannels = 2;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Element types for the kernels in this module, which do not use LibTorch.

struct BFloat16 {
  uint16_t bits;  // the upper half of a float
};

// The type in which results for tensors of S (float, double or BFloat16) are computed.
template <class S>
using Computed = std::conditional_t<std::is_same_v<S, BFloat16>, float, S>;

// The activations that fused kernels compute, the first ones of nn::Activation; with an added residual only the first two.
enum class FusedActivation { kNone, kRelu, kRelu6, kHardswish, kSilu };

}  // namespace trainer::nn
