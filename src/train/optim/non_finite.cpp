#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <span>
#include <utility>

#include "distributed/packed_tensors.h"
#include "train/optim/non_finite_values.h"
#include "train/optim/optimizer.h"

namespace trainer::optim {
namespace {

template <class Value>
std::span<const Value> values_of(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr<Value>(), static_cast<size_t>(tensor.numel())};
}

bool has_non_finite(const torch::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) {
    if (tensor.scalar_type() == torch::kFloat32) return optim::has_non_finite(values_of<float>(tensor));
    if (tensor.scalar_type() == torch::kFloat64) return optim::has_non_finite(values_of<double>(tensor));
  }
  return !tensor.isfinite().all().item<bool>();
}

}  // namespace

torch::Tensor find_non_finite(const std::vector<torch::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  const auto grads = gradients_of(parameters);
  const auto options = torch::dtype(torch::kFloat32);
  if (grads.empty()) return torch::zeros({}, options.device(parameters.front().device()));
  const auto device = grads.front().device();
  if (device.is_cpu()) return torch::full({}, std::ranges::any_of(grads, [](const auto& grad) { return has_non_finite(grad); }), options);
  auto found = torch::zeros({}, options.device(device));
  at::_amp_foreach_non_finite_check_and_unscale_(grads, found, torch::ones({}, options.device(device)));
  return found;
}

namespace {

// Divides tensors into lists of about 64 MiB, which bounds the memory of values computed from a whole list.
std::vector<std::vector<torch::Tensor>> chunks_of(const std::vector<torch::Tensor>& tensors) {
  constexpr size_t kLimit = size_t{64} << 20;
  std::vector<std::vector<torch::Tensor>> chunks;
  size_t num_bytes = kLimit;
  for (const auto& tensor : tensors) {
    if (num_bytes >= kLimit) {
      chunks.emplace_back();
      num_bytes = 0;
    }
    chunks.back().push_back(tensor);
    num_bytes += tensor.nbytes();
  }
  return chunks;
}

}  // namespace

void change_unless(const std::optional<torch::Tensor>& found_inf, const std::vector<torch::Tensor>& tensors,
                   const std::function<void()>& change) {
  if (!found_inf) {
    change();
  } else if (found_inf->is_cpu()) {
    if (found_inf->item<float>() == 0) change();
  } else {
    const auto skip = found_inf->ne(0);
    std::vector<std::pair<distributed::PackedTensors, torch::Tensor>> before;
    for (auto& chunk : chunks_of(tensors)) {
      distributed::PackedTensors packed(std::move(chunk));
      auto bytes = packed.read();
      before.emplace_back(std::move(packed), std::move(bytes));
    }
    change();
    // The old values are written back, because infinities and NaN cannot be removed by multiplying them by a flag.
    for (const auto& [packed, bytes] : before) packed.write_if(skip, bytes);
  }
}

}  // namespace trainer::optim
