#pragma once
// How much memory a rank needs in training, and how long a step takes on the CPU, from a few steps on small batches of random numbers.
// docs/performance.md explains what is counted and how far the estimate is from measured runs.

#include <cstdint>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "engine/parts.h"
#include "inspection/allocation_trace.h"

namespace trainer::inspection {

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
