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
// the learning rate, the number of the step, and all that one step leaves to the next; and host code of a step runs only in the recording.
class StepGraph {
 public:
  // Null: this training has none. Throws UsageError if it cannot have one under runtime.cuda_graph: on. `parts` must outlive it.
  static std::unique_ptr<StepGraph> make_if_possible(Parts& parts);
  // While it exists, its thread computes on a stream of its own, on which alone a graph can be recorded.
  explicit StepGraph(Parts& parts);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // `compute`: all that a step asks of the device. The generators of random numbers have their states of this step.
  void run(const DeviceBatch& batch, const std::function<void(const DeviceBatch& batch)>& compute);

 private:
  // Whether a batch can be copied into the one that the graph reads.
  bool fits(const DeviceBatch& batch) const;
  void record(const std::function<void(const DeviceBatch& batch)>& compute);

  Parts& parts_;
  c10::Stream previous_stream_;
  std::optional<DeviceBatch> batch_;  // that the graph reads
  int64_t num_computed_ = 0;          // batches of this shape
  std::unique_ptr<device::CudaGraph> graph_;
};

}  // namespace trainer::engine
