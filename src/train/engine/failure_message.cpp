#include "train/engine/failure_message.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "distributed/first_line.h"

namespace trainer::engine {

namespace {

// Returns only the first line of messages of CUDA and NCCL. Other messages are returned whole: those of TorchScript end with the reason.
std::string text_of(const std::exception& error) {
  const bool is_of_gpu =
      dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr || dynamic_cast<const c10::DistBackendError*>(&error) != nullptr;
  return is_of_gpu ? distributed::first_line(error) : distributed::message_of(error);
}

// Returns the error that the device itself reports; empty if the device works. The caught error may be a later one, such as one of cuDNN.
std::string failure_of(const torch::Device& device) {
  if (device.is_cpu()) return "";
  try {
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.queryStream(guard.getStream(device));
    return "";
  } catch (const std::exception& error) {
    return distributed::first_line(error);
  }
}

}  // namespace

std::string describe_failure(const std::exception& error, const Parts& parts) {
  const auto activity = parts.ranks.activity->read();
  const auto where = describe(activity);
  if (!is_out_of_memory(error)) {
    const auto text = text_of(error);
    const auto of_device = failure_of(parts.network.placement.device);
    return fmt::format("{}: {}", where, of_device.empty() || of_device == text ? text : of_device + "; then " + text);
  }
  if (activity.phase == distributed::Phase::kValidation) {
    return fmt::format("out of memory in validation at batch_size {}; lower validation.batch_size",
                       parts.data.validation->batches->batch_size());
  }
  if (activity.phase == distributed::Phase::kStartUp) {
    return fmt::format(
        "out of memory during start-up, with {} training samples and batch_size {}; lower dataloader.batch_size (or "
        "dataloader.global_batch_size), or choose a smaller data set",
        parts.data.train.samples.size(), parts.data.plan.batch_size);
  }
  // A graph needs one micro-step.
  const auto* without_graph = parts.network.placement.cuda_graph == device::CudaGraphChoice::kOn ? "set runtime.cuda_graph: off, " : "";
  return fmt::format(
      "out of memory in {} at batch_size {}; {}raise training.accumulation_steps, and unless dataloader.global_batch_size is set, lower "
      "dataloader.batch_size by the same factor",
      where, parts.data.plan.batch_size, without_graph);
}

}  // namespace trainer::engine
