#pragma once
// Packs tensors into one tensor of bytes, so that they are sent in one message and copied by few GPU kernels.

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "trainer/error.h"
#include "trainer/torch.h"

namespace trainer::distributed {

class PackedTensors {
 public:
  // Keeps references to the tensors. Throws UsageError unless they are on one device.
  explicit PackedTensors(std::vector<torch::Tensor> tensors) : tensors_(std::move(tensors)) {
    const auto is_elsewhere = [this](const torch::Tensor& tensor) { return tensor.device() != tensors_.front().device(); };
    if (std::ranges::any_of(tensors_, is_elsewhere))
      throw UsageError("the buffers of the model are on several devices; move the model to one device");
    // Tensors with the largest elements come first, so that every tensor is aligned in the bytes.
    std::ranges::stable_sort(tensors_, std::greater(), [](const torch::Tensor& tensor) { return tensor.element_size(); });
  }

  bool empty() const { return tensors_.empty(); }

  // Returns a copy of the tensors' bytes.
  torch::Tensor read() const {
    if (empty()) return torch::empty({0}, torch::kUInt8);
    std::vector<torch::Tensor> bytes;
    for (const auto& tensor : tensors_) {
      const auto values = tensor.detach();
      const auto dense = is_dense(values) ? values.as_strided({values.numel()}, {1}) : values.contiguous().view({-1});
      bytes.push_back(dense.view(torch::kUInt8));
    }
    return at::cat(bytes);
  }

  // Sets the tensors' values from `bytes`, as returned by read().
  void write(const torch::Tensor& bytes) const {
    const torch::NoGradGuard no_grad;
    int64_t begin = 0;
    for (auto first = tensors_.begin(); first != tensors_.end();) {
      const auto has_other_type = [&](const torch::Tensor& tensor) { return tensor.scalar_type() != first->scalar_type(); };
      const auto end = std::find_if(first, tensors_.end(), has_other_type);
      std::vector<torch::Tensor> values;
      for (auto tensor = first; tensor != end; ++tensor) {
        const auto size = static_cast<int64_t>(tensor->nbytes());
        const auto dense = bytes.narrow(0, begin, size).view(tensor->scalar_type());
        values.push_back(is_dense(*tensor) ? dense.as_strided(tensor->sizes(), tensor->strides()) : dense.view(tensor->sizes()));
        begin += size;
      }
      // One kernel copies all tensors of the same type.
      at::_foreach_copy_(std::vector(first, end), values);
      first = end;
    }
  }

  // Like write() if `condition`, a bool scalar on the tensors' device, is true; changes nothing otherwise. Does not synchronize with a GPU.
  void write_if(const torch::Tensor& condition, const torch::Tensor& bytes) const {
    if (!empty()) write(at::where(condition, bytes, read()));
  }

 private:
  // Whether the elements fill the tensor's memory, in any order, so that they can be copied in memory order.
  static bool is_dense(const torch::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

  std::vector<torch::Tensor> tensors_;
};

}  // namespace trainer::distributed
