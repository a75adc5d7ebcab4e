#include "train/engine/step_graph.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "distributed/first_line.h"
#include "train/engine/failure_message.h"
#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::engine {
namespace {

// The first steps are not recorded, because in them optimizers allocate their state and cuDNN searches for its fastest algorithms.
constexpr int64_t kFirstSteps = 3;

// The condition for a graph that this run does not meet; empty if a graph is possible.
std::string refusal(const Parts& parts) {
  if (parts.ranks.world->size() > 1) return "one process, but this run has several";
  if (parts.ranks.world->c10d_group()) return "distributed.backend: auto";
  if (parts.data.plan.accumulation_steps > 1) return "training.accumulation_steps: 1";
  if (!parts.network.optimizer->is_recordable()) {
    return "optimizer adam, adamw, or sgd with dampening 0, and optimizer.skip_zero_grads: false";
  }
  // Without a momentum, the weight of the next batch depends on the number of batches, which the host reads.
  const auto averages = [](const auto& module) {
    const auto* layer = dynamic_cast<const nn::BatchNorm2d*>(module.get());
    return layer != nullptr && layer->averages_all_batches();
  };
  if (std::ranges::any_of(parts.network.model->modules(), averages)) return "batch normalisations with a momentum";
  return "";
}

bool are_alike(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

}  // namespace

std::unique_ptr<StepGraph> StepGraph::make_if_possible(Parts& parts, OnWarning on_warning) {
  const auto choice = parts.network.placement.cuda_graph;
  if (choice == device::CudaGraphChoice::kOff) return nullptr;
  const auto needed = refusal(parts);
  if (!needed.empty() && choice == device::CudaGraphChoice::kOn) {
    throw UsageError(fmt::format("runtime.cuda_graph: on needs {}; change this, or set runtime.cuda_graph: auto", needed));
  }
  return needed.empty() ? std::make_unique<StepGraph>(parts, std::move(on_warning)) : nullptr;
}

StepGraph::StepGraph(Parts& parts, OnWarning on_warning)
    : parts_(parts), on_warning_(std::move(on_warning)), previous_stream_(c10::Stream::DEFAULT, parts.network.placement.device) {
  const c10::impl::VirtualGuardImpl guard(parts.network.placement.device.type());
  guard.synchronizeDevice(parts.network.placement.device.index());
  previous_stream_ = guard.exchangeStream(guard.getStreamFromGlobalPool(parts.network.placement.device));
}

StepGraph::~StepGraph() {
  const c10::impl::VirtualGuardImpl guard(parts_.network.placement.device.type());
  try {
    guard.synchronizeDevice(parts_.network.placement.device.index());
  } catch (const std::exception&) {
    // This fails only if the device has failed, which a step has already reported.
  }
  guard.exchangeStream(previous_stream_);
}

bool StepGraph::fits(const DeviceBatch& batch) const {
  return batch_ && are_alike(batch.images, batch_->images) && are_alike(batch.targets, batch_->targets);
}

void StepGraph::run(const DeviceBatch& batch, const std::function<void(const DeviceBatch& batch)>& compute) {
  const bool is_part = batch_ && batch.images.size(0) < batch_->images.size(0);
  if (!replay_ && !is_part && !fits(batch)) {
    batch_ = {torch::empty_like(batch.images), torch::empty_like(batch.targets)};
    num_computed_ = 0;
  }
  if (has_failed_ || !fits(batch) || num_computed_ < kFirstSteps) {
    if (fits(batch)) ++num_computed_;
    compute(batch);
    return;
  }
  batch_->images.copy_(batch.images);
  batch_->targets.copy_(batch.targets);
  if (replay_) {
    replay_();
  } else if (!record(compute)) {
    compute(batch);
  }
}

bool StepGraph::record(const std::function<void(const DeviceBatch& batch)>& compute) {
  const auto& placement = parts_.network.placement;
  // Without this wait, a failure of earlier steps would be reported as a failure of the recording.
  c10::impl::VirtualGuardImpl(placement.device.type()).synchronizeDevice(placement.device.index());
  const auto scaler = parts_.network.grad_scaler;
  try {
    replay_ = placement.cuda->record_graph({parts_.network.dropout_generator}, [&] { compute(*batch_); });
    replay_();
    return true;
  } catch (const c10::Error& error) {
    const auto reason = is_out_of_memory(error) ? "out of memory" : distributed::first_line(error);
    const auto failure = fmt::format("a step of this network cannot be recorded as a CUDA graph ({})", reason);
    if (placement.cuda_graph == device::CudaGraphChoice::kOn) throw Error(failure + "; set runtime.cuda_graph: off");
    replay_ = {};
    has_failed_ = true;
    // An interrupted recording leaves gradients, whose values were never computed, and a scaler that has unscaled them.
    parts_.network.optimizer->zero_grad();
    parts_.network.grad_scaler = scaler;
    on_warning_(failure + "; the training runs without one");
    return false;
  }
}

}  // namespace trainer::engine
