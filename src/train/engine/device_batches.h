#pragma once
// Copies of batches on the training device.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <array>
#include <memory>
#include <optional>

#include "data/data_loader.h"
#include "distributed/activity.h"

namespace trainer::engine {

// An event on the current stream of a GPU, after the copies of a batch. During wait(), the rank counts as waiting for other ranks, because
// the device may be waiting for their gradients.
class DeviceCopyEvent final : public data::CopyEvent {
 public:
  // `activity` may be null.
  DeviceCopyEvent(torch::Device device, std::shared_ptr<distributed::Activity> activity);

  void record() override;
  void wait() override;

 private:
  torch::Device device_;
  std::shared_ptr<distributed::Activity> activity_;
  c10::Event event_;
};

// A batch on the training device.
struct DeviceBatch {
  torch::Tensor images;
  torch::Tensor targets;
};

// Copies batches to the device. A GPU copies images on a separate stream, so that it can do so while it computes the previous step.
class DeviceBatches {
 public:
  explicit DeviceBatches(torch::Device device);
  // Enqueues the copies of a batch, for use on the current stream, and records the batch's copy event, if it has one. Tensors that are on
  // the device already are not copied. On a GPU, the memory of the images is used again by the second next call.
  DeviceBatch copy(const data::Batch& batch);

 private:
  // Memory for the images of one batch. `unused`: after the last work on the current stream that uses it.
  struct Slot {
    explicit Slot(torch::Device device) : unused(device.type()) {}
    torch::Tensor images;
    c10::Event unused;
  };
  torch::Tensor copy_images(const torch::Tensor& images);

  torch::Device device_;
  std::optional<c10::Stream> stream_;  // empty on a CPU
  c10::Event copied_;
  std::array<Slot, 2> slots_;
  size_t next_slot_ = 0;
};

}  // namespace trainer::engine
