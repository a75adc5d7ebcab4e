#pragma once
// runtime.cuda_graph: the steps of a training on a GPU, repeated from a CUDA graph.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "device/cuda_module.h"
#include "train/engine/parts.h"
#include "train/engine/shared_batches.h"

namespace trainer::engine {

// Computes steps of one micro-step: the first ones as they come, then one that it records, and from then on those with a batch of the same
// shape by starting the graph. A graph repeats addresses and numbers. So what changes from step to step has to lie in tensors that stay:
// the learning rate, the number of the step, and all that one step leaves to the next; and what the host does in a step happens once.
class StepGraph {
 public:
  // Null: this training has none. Otherwise the thread, which has to be that of the steps, computes on a stream of its own from now on.
  // Throws UsageError if the training cannot have one under runtime.cuda_graph: on. `parts` must outlive it.
  static std::unique_ptr<StepGraph> make_if_possible(Parts& parts);

  // `compute`: all that a step asks of the device. The generators of random numbers have their states of this step.
  void run(const DeviceBatch& batch, const std::function<void(const DeviceBatch& batch)>& compute);

 private:
  explicit StepGraph(Parts& parts) : parts_(parts) {}
  // Whether a batch can be copied into the one that the graph reads.
  bool fits(const DeviceBatch& batch) const;

  Parts& parts_;
  std::optional<DeviceBatch> batch_;  // that the graph reads
  int64_t num_computed_ = 0;          // batches of this shape, in a row
  std::unique_ptr<device::CudaGraph> graph_;
};

}  // namespace trainer::engine
