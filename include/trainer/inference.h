#pragma once
// Code shared by training and prediction: torch.autocast, and averaging outputs over views of an image.

#include <torch/types.h>

#include <functional>
#include <optional>

#include "trainer/options.h"

namespace trainer::amp {

// During its lifetime, forward operations of this thread on `device_type` run in `dtype` if they are in PyTorch's autocast lists. Without a
// dtype, it has no effect. Use it for forward and loss, but not for backward. Weights that were converted to `dtype` are cached until the
// outermost guard ends.
class AutocastGuard {
 public:
  AutocastGuard(c10::DeviceType device_type, std::optional<c10::ScalarType> dtype);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  c10::DeviceType device_type_;
  bool active_;
  bool was_enabled_ = false;
  c10::ScalarType previous_dtype_ = c10::ScalarType::Undefined;
};

}  // namespace trainer::amp

namespace trainer::task {

// `images`: [N, C, H, W], N may be 0; `forward` returns the outputs [N, K] of such a batch. Returns the mean outputs over the views of
// `tta`, in float32 if `forward` returns a type of lower precision; for `none` the result of `forward(images)`. Views have the dtype,
// device and memory format of `images`. Shifted views need H, W >= 2.
torch::Tensor average_over_views(const torch::Tensor& images, TestTimeAugmentation tta,
                                 const std::function<torch::Tensor(const torch::Tensor&)>& forward);

}  // namespace trainer::task
