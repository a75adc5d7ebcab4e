#pragma once

#include <c10/core/Event.h>

#include <memory>

#include "data/data_loader.h"
#include "distributed/activity.h"

namespace trainer::engine {

// Of copies on the current stream of a GPU. While it waits, the rank counts as waiting for other ranks: the device may wait for their
// gradients.
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

// A batch on the device that trains.
struct DeviceBatch {
  torch::Tensor images;
  torch::Tensor targets;
};

// Enqueues the copies, and records the batch's event.
DeviceBatch copy_to_device(const data::Batch& batch, torch::Device device);

}  // namespace trainer::engine
