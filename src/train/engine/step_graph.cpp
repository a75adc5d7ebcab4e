#include "train/engine/step_graph.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "trainer/error.h"

namespace trainer::engine {
namespace {

// In the first steps optimizers make their state and cuDNN searches for its fastest algorithms.
constexpr int64_t kFirstSteps = 3;

// Why this training cannot have a graph; empty if it can.
std::string refusal(const Parts& parts) {
  if (parts.ranks.world->size() > 1) return "one process, but this run has several";
  if (parts.plan.accumulation_steps > 1) return "training.accumulation_steps: 1";
  if (!parts.optimizer->is_recordable()) {
    return "the optimizer sgd without dampening, adam or adamw, and optimizer.skip_zero_grads: false";
  }
  return "";
}

bool are_alike(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

}  // namespace

std::unique_ptr<StepGraph> StepGraph::make_if_possible(Parts& parts) {
  const auto choice = parts.placement.cuda_graph;
  if (choice == device::CudaGraphChoice::kOff) return nullptr;
  const auto needed = refusal(parts);
  if (!needed.empty() && choice == device::CudaGraphChoice::kOn) {
    throw UsageError(fmt::format("runtime.cuda_graph: on needs {}; change that, or set runtime.cuda_graph: auto", needed));
  }
  if (!needed.empty()) return nullptr;
  parts.placement.cuda->use_own_stream(parts.placement.device.index());
  return std::unique_ptr<StepGraph>(new StepGraph(parts));
}

bool StepGraph::fits(const DeviceBatch& batch) const {
  return batch_ && are_alike(batch.images, batch_->images) && are_alike(batch.targets, batch_->targets);
}

void StepGraph::run(const DeviceBatch& batch, const std::function<void(const DeviceBatch& batch)>& compute) {
  if (!fits(batch) && !graph_) {
    batch_ = {torch::empty_like(batch.images), torch::empty_like(batch.targets)};
    num_computed_ = 0;
  }
  if (!fits(batch) || num_computed_ < kFirstSteps) {
    ++num_computed_;
    compute(batch);
    return;
  }
  batch_->images.copy_(batch.images);
  batch_->targets.copy_(batch.targets);
  if (!graph_) {
    try {
      graph_ = parts_.placement.cuda->record_graph({parts_.dropout_generator}, [&] { compute(*batch_); });
    } catch (const c10::Error& error) {
      throw Error(fmt::format("a step of this network cannot be recorded as a CUDA graph ({}); set runtime.cuda_graph: off",
                              error.what_without_backtrace()));
    }
  }
  graph_->replay();
}

}  // namespace trainer::engine
