#pragma once
// runtime.cuda_graph: replays training steps on a GPU from a CUDA graph.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "device/cuda_module.h"
#include "train/engine/device_batches.h"
#include "train/engine/parts.h"

namespace trainer::engine {

// Computes training steps that have one micro-step. The first steps run without a graph, the next one is recorded, and later steps with a
// batch of the same shape replay the graph. A graph repeats addresses and constants. Therefore everything that changes from step to step
// (the learning rate, the number of the step, the state that one step passes to the next) must be in tensors that keep their addresses, and
// the host code of a step runs only during recording.
class StepGraph {
 public:
  // Receives a sentence if a step cannot be recorded under runtime.cuda_graph: auto.
  using OnWarning = std::function<void(const std::string& message)>;

  // Returns null under runtime.cuda_graph: off. If this run cannot use a graph, returns null under auto and throws UsageError under on.
  // `parts` must outlive this object.
  static std::unique_ptr<StepGraph> make_if_possible(Parts& parts, OnWarning on_warning);
  // During its lifetime the current thread uses a separate stream, because a graph cannot be recorded on the default stream.
  StepGraph(Parts& parts, OnWarning on_warning);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // `compute` runs all device work of a step, for which the random generators must already be seeded. If recording fails or needs too much
  // memory, this and all later steps run without a graph under runtime.cuda_graph: auto; throws Error under on.
  void run(const DeviceBatch& batch, const std::function<void(const DeviceBatch& batch)>& compute);

 private:
  // Whether a batch can be copied into the one that the graph reads.
  bool fits(const DeviceBatch& batch) const;
  // Records the graph and replays it for the first time. Returns false if the step must run without a graph.
  bool record(const std::function<void(const DeviceBatch& batch)>& compute);

  Parts& parts_;
  OnWarning on_warning_;
  c10::Stream previous_stream_;
  std::optional<DeviceBatch> batch_;  // the batch that the graph reads
  int64_t num_computed_ = 0;          // batches of this shape so far
  std::function<void()> replay_;      // empty: not recorded yet
  bool has_failed_ = false;           // whether recording has failed
};

}  // namespace trainer::engine
