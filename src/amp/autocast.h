#pragma once

#include <torch/types.h>

#include <optional>

namespace trainer::amp {

// While it lives, forward operations of this thread on `device_type` run in `dtype` if they are in PyTorch's autocast lists. Without a
// dtype, nothing changes. Wrap forward and loss, not backward. Weights cast inside are cached until the outermost guard ends.
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
