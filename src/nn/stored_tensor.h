#pragma once
// Gives kernels that do not include LibTorch access to the values of tensors.

#include <ATen/Dispatch.h>
#include <torch/types.h>

#include <type_traits>

#include "nn/channels.h"

namespace trainer::nn {

// Calls act(S()) with the type of a tensor's values: float, double or BFloat16.
template <class Act>
void dispatch_stored(torch::ScalarType dtype, const Act& act) {
  static_assert(sizeof(BFloat16) == sizeof(c10::BFloat16));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, dtype, "dispatch_stored",
                                 [&] { act(std::conditional_t<std::is_same_v<scalar_t, c10::BFloat16>, BFloat16, scalar_t>()); });
}

// The type of the computation for tensors of `dtype`: Computed<S>.
inline torch::ScalarType computed_type(torch::ScalarType dtype) { return dtype == torch::kBFloat16 ? torch::kFloat32 : dtype; }

// The values from number `first` on; null if the tensor is undefined.
template <class S>
const S* values_of(const torch::Tensor& tensor, int64_t first = 0) {
  return tensor.defined() ? static_cast<const S*>(tensor.const_data_ptr()) + first : nullptr;
}
template <class S>
S* mutable_values_of(const torch::Tensor& tensor, int64_t first = 0) {
  return tensor.defined() ? static_cast<S*>(tensor.mutable_data_ptr()) + first : nullptr;
}

}  // namespace trainer::nn
