#pragma once
// How much memory a rank needs in training, and how long a step takes on the CPU, from a few steps on small batches of random numbers.
// docs/performance.md explains what is counted and how far the estimate is from measured runs.

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "train/engine/parts.h"

namespace trainer::inspection {

// Records how much tensor memory a piece of code allocates on the CPU, and predicts that for a larger batch.

// The allocations and releases of LibTorch's CPU allocator, in their order, in bytes; releases are negative.
struct Allocations {
  std::vector<int64_t> changes;
  size_t num_before_mark = 0;  // how many of them came before the mark

  // Bytes that are in use at the mark, and at most, beyond those before the trace.
  int64_t at_mark() const;
  int64_t peak() const;
  int64_t at_end() const;
};

// Records those of this thread while it lives. A single-threaded backward pass on the CPU runs on the thread that calls it.
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

// The allocations of a batch of `size` samples, from those of two smaller ones: the same work allocates in the same order, and each
// size is a constant plus a multiple of the batch size. Only if the order differs, the peak and the value at the mark are computed so.
Allocations extrapolate(const Allocations& small, int64_t small_size, const Allocations& large, int64_t large_size, int64_t size);

struct MemoryItem {
  std::string name;  // "optimizer_state"
  std::string what;  // for people
  int64_t bytes = 0;
};

struct MemoryEstimate {
  std::vector<MemoryItem> items;
  int64_t total() const;
};

// How long a step takes on this CPU, without reading the samples.
struct StepTime {
  double seconds_per_sample = 0;  // forward and backward
  double update_seconds = 0;      // once a step, in however many micro-steps its samples come

  double seconds(int64_t num_samples) const { return static_cast<double>(num_samples) * seconds_per_sample + update_seconds; }
};

// What the estimate depends on beside the network.
struct MemorySetup {
  const config::Experiment& experiment;
  data::DatasetInfo info;
  std::vector<int64_t> train_shape;       // of a transformed sample
  std::vector<int64_t> validation_shape;  // the same
  int world_size = 1;
  bool on_gpu = false;  // estimate the memory of a GPU, by the same counting
};

// The allocations of training steps and of validation batches, and how long a step takes.
class MeasuredMemory {
 public:
  // Runs forward, backward and optimizer on batches of random numbers, which changes the weights. `flops`: of the forward pass of one
  // sample; a step of a network with many runs on fewer samples. `batch_size`: of a micro-step on one rank. `num_joined`: samples in a
  // micro-step, of those whose batch statistics are joined; steps on one sample are tried only if it is 1. Throws what training would
  // throw, such as UsageError of batch normalisation.
  MeasuredMemory(engine::Network& network, const MemorySetup& setup, int64_t flops, int64_t batch_size, int64_t num_joined);

  const StepTime& step_time() const { return step_time_; }
  // Of rank 0, which saves the checkpoints. `batch_size` and `validation_batch_size`: samples of a micro-step and of a validation batch on
  // one rank; `dataset_bytes`: of the samples that stay in memory.
  MemoryEstimate estimate(const MemorySetup& setup, int64_t batch_size, int64_t validation_batch_size, int64_t dataset_bytes) const;

 private:
  struct Batches {
    Allocations small, large;
  };
  int64_t small_size_ = 0;
  int64_t large_size_ = 0;
  Batches train_, validation_;
  StepTime step_time_;
  int64_t process_bytes_ = 0;  // of this process without tensors: LibTorch, its threads and generated code
  int64_t model_bytes_ = 0;    // parameters and buffers
  int64_t gradient_bytes_ = 0;
  int64_t optimizer_bytes_ = 0;
  int64_t parameter_bytes_ = 0;
  int64_t sample_bytes_ = 0;             // of a transformed training sample
  int64_t validation_sample_bytes_ = 0;  // of a validation sample
};

}  // namespace trainer::inspection
