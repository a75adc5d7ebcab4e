#pragma once
// Estimates the memory that a rank needs in training, and the time of a step on the CPU, from a few steps on small batches of random
// numbers. docs/performance.md explains what is counted; docs/results.md compares the estimate with measured runs.

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "train/engine/parts.h"

namespace trainer::inspection {

// Records the tensor memory that code allocates on the CPU, and extrapolates it to a larger batch.

// The allocations and releases of LibTorch's CPU allocator in their order, in bytes; releases are negative.
struct Allocations {
  std::vector<int64_t> changes;
  size_t num_before_mark = 0;  // number of changes before AllocationTrace::mark()

  // Bytes in use at the mark, at the peak and at the end, relative to the start of the trace.
  int64_t at_mark() const;
  int64_t peak() const;
  int64_t at_end() const;
};

// Records the allocations of this thread during the object's lifetime, including those of a backward pass on the CPU, which runs on the
// calling thread.
class AllocationTrace {
 public:
  AllocationTrace();
  ~AllocationTrace();
  AllocationTrace(const AllocationTrace&) = delete;
  AllocationTrace& operator=(const AllocationTrace&) = delete;

  void mark();
  const Allocations& result() const;

 private:
  class Recorder;
  std::shared_ptr<Recorder> recorder_;
  c10::DebugInfoGuard guard_;
};

// Extrapolates the allocations of two smaller batches to a batch of `size` samples. Assumes that both batches allocate in the same order
// and that each size is a constant plus a multiple of the batch size. If the orders differ, only the peak and the value at the mark are
// extrapolated.
Allocations extrapolate(const Allocations& small, int64_t small_size, const Allocations& large, int64_t large_size, int64_t size);

struct MemoryItem {
  std::string name;  // such as "optimizer_state"
  std::string what;  // description for users
  int64_t bytes = 0;
};

struct MemoryEstimate {
  std::vector<MemoryItem> items;
  int64_t total() const;
};

// The time of a step on this CPU, without loading the samples.
struct StepTime {
  double seconds_per_sample = 0;  // forward and backward
  double update_seconds = 0;      // once per step, for any number of micro-steps

  double seconds(int64_t num_samples) const { return static_cast<double>(num_samples) * seconds_per_sample + update_seconds; }
};

// What the estimate depends on besides the network.
struct MemorySetup {
  const config::Experiment& experiment;
  data::DatasetInfo info;
  std::vector<int64_t> train_shape;       // of a transformed sample, or of its cached features
  std::vector<int64_t> validation_shape;  // of a transformed sample
  int64_t flops = 0;       // of the forward pass of a sample of `train_shape`; the more, the smaller the batches; 0: not known
  int64_t batch_size = 1;  // of a micro-step on one rank
  int64_t num_joined = 1;  // samples of a micro-step that share batch statistics; a step on one sample is run only if this is 1
  int world_size = 1;
  bool on_gpu = false;  // whether to estimate the memory of a GPU, with the same method
};

// These functions run forward, backward and optimizer on batches of random numbers, with the learning rate 0, which changes the buffers and
// the state of the optimizer. They throw the errors that training would throw, such as UsageError of batch normalisation.

StepTime measure_step_time(engine::Network& network, const MemorySetup& setup);

// The allocations of batches of two sizes.
struct BatchAllocations {
  int64_t small_size = 0, large_size = 0;
  Allocations small, large;
};

// The pass over the samples that computes their features (training.cache_features).
struct FeaturePass {
  double seconds_per_sample = 0;
  BatchAllocations allocations = {};
};
// `network` does not take features yet, and `setup` has the shape and FLOPs of a sample.
FeaturePass measure_feature_pass(engine::Network& network, const MemorySetup& setup);

// The allocations of training steps and of validation batches.
class MeasuredMemory {
 public:
  // `features`: null unless the network takes cached features.
  MeasuredMemory(engine::Network& network, const MemorySetup& setup, const FeaturePass* features);

  // The estimate for rank 0, which saves the checkpoints. `validation_batch_size`: samples of a validation batch on one rank;
  // `dataset_bytes`: size of the samples that stay in memory.
  MemoryEstimate estimate(const MemorySetup& setup, int64_t validation_batch_size, int64_t dataset_bytes) const;

 private:
  BatchAllocations train_, validation_;
  int64_t process_bytes_ = 0;  // of this process without tensors: LibTorch, its threads and generated code
  int64_t model_bytes_ = 0;    // parameters and buffers
  int64_t gradient_bytes_ = 0;
  int64_t optimizer_bytes_ = 0;
  int64_t parameter_bytes_ = 0;
  int64_t sample_bytes_ = 0;             // of a transformed training sample
  int64_t validation_sample_bytes_ = 0;  // of a validation sample
};

}  // namespace trainer::inspection
