#include "train/engine/copy_event.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace trainer::engine {

DeviceCopyEvent::DeviceCopyEvent(torch::Device device, std::shared_ptr<distributed::Activity> activity)
    : device_(device), activity_(std::move(activity)), event_(device.type()) {}

void DeviceCopyEvent::record() { event_.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_)); }

void DeviceCopyEvent::wait() {
  if (!event_.was_marked_for_recording()) return;
  const distributed::Activity::Wait wait(activity_.get());
  event_.synchronize();
}

DeviceBatch copy_to_device(const data::Batch& batch, torch::Device device) {
  DeviceBatch copies{batch.images.to(device, /*non_blocking=*/true), batch.targets.to(device, /*non_blocking=*/true)};
  if (batch.copied != nullptr) batch.copied->record();
  return copies;
}

}  // namespace trainer::engine
