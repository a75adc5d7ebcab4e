#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "optim/optimizer.h"

namespace trainer::optim {
namespace {

constexpr int64_t kGrain = 1 << 16;

// An infinity or NaN has all bits of the exponent. The test uses integers, because every compiler vectorizes that loop.
template <class Value, class Bits>
bool has_non_finite(const torch::Tensor& tensor) {
  constexpr Bits kExponent = std::bit_cast<Bits>(std::numeric_limits<Value>::infinity());
  const auto* bits = static_cast<const Bits*>(tensor.const_data_ptr());
  std::atomic<bool> found = false;
  at::parallel_for(0, tensor.numel(), kGrain, [&](int64_t begin, int64_t end) {
    Bits any = 0;
    for (int64_t i = begin; i < end; ++i) any |= static_cast<Bits>((bits[i] & kExponent) == kExponent);
    if (any != 0) found = true;
  });
  return found;
}

bool has_non_finite(const torch::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) {
    if (tensor.scalar_type() == torch::kFloat32) return has_non_finite<float, uint32_t>(tensor);
    if (tensor.scalar_type() == torch::kFloat64) return has_non_finite<double, uint64_t>(tensor);
  }
  return !tensor.isfinite().all().item<bool>();
}

}  // namespace

torch::Tensor find_non_finite(const std::vector<torch::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  std::vector<torch::Tensor> grads;
  for (const auto& param : parameters) {
    if (param.grad().defined()) grads.push_back(param.grad());
  }
  const auto options = torch::dtype(torch::kFloat32);
  if (grads.empty()) return torch::zeros({}, options.device(parameters.front().device()));
  const auto device = grads.front().device();
  if (device.is_cpu()) return torch::full({}, std::ranges::any_of(grads, [](const auto& grad) { return has_non_finite(grad); }), options);
  auto found = torch::zeros({}, options.device(device));
  at::_amp_foreach_non_finite_check_and_unscale_(grads, found, torch::ones({}, options.device(device)));
  return found;
}

}  // namespace trainer::optim
