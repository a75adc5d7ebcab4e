#include "train/engine/device_batches.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "trainer/torch.h"

namespace trainer::engine {

DeviceCopyEvent::DeviceCopyEvent(torch::Device device, std::shared_ptr<distributed::Activity> activity)
    : device_(device), activity_(std::move(activity)), event_(device.type()) {}

void DeviceCopyEvent::record() { event_.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_)); }

void DeviceCopyEvent::wait() {
  if (!event_.was_marked_for_recording()) return;
  const distributed::Activity::Wait wait(activity_.get());
  event_.synchronize();
}

DeviceBatches::DeviceBatches(torch::Device device) : device_(device), copied_(device.type()), slots_{Slot(device), Slot(device)} {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

DeviceBatch DeviceBatches::copy(const data::Batch& batch) {
  const bool is_there = batch.images.device() == device_;
  // The targets, which are usually small, get memory of their own, because a task may keep them.
  DeviceBatch copies{is_there ? batch.images : copy_images(batch.images), batch.targets.to(device_, /*non_blocking=*/true)};
  if (batch.copied != nullptr) batch.copied->record();
  return copies;
}

torch::Tensor DeviceBatches::copy_images(const torch::Tensor& images) {
  // The memory may be used within an InferenceMode and without one.
  const c10::InferenceMode normal(/*enabled=*/false);
  const torch::NoGradGuard no_grad;
  const auto current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  auto& previous = slots_[1 - next_slot_];
  auto& slot = slots_[next_slot_];
  next_slot_ = 1 - next_slot_;
  // All work on the previous batch has been enqueued by now.
  if (previous.images.defined()) previous.unused.record(current);
  const auto& memory = slot.images;
  const bool fits = memory.defined() && memory.scalar_type() == images.scalar_type() && memory.dim() == images.dim() &&
                    memory.size(0) >= images.size(0) && memory.sizes().slice(1).equals(images.sizes().slice(1));
  if (!fits) {
    slot.images = torch::empty_like(images, images.options().device(device_).pinned_memory(false));
    // Earlier work may still use the memory.
    slot.unused.record(current);
  }
  // Detached, because a network that changes its input in place gives it an autograd history.
  const auto result = slot.images.narrow(0, 0, images.size(0)).detach();
  {
    const c10::StreamGuard guard(*stream_);
    slot.unused.block(*stream_);
    result.copy_(images, /*non_blocking=*/true);
    copied_.record(*stream_);
  }
  copied_.block(current);
  return result;
}

}  // namespace trainer::engine
