#pragma once
// Estimates the memory that a rank needs in training, and the time of a step on the CPU, from a step on a small batch of random numbers.
// docs/performance.md explains what is counted; docs/results.md compares the estimate with measured runs.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "train/engine/parts.h"

namespace trainer::inspection {

// Bytes relative to the start of a trace.
struct Allocations {
  int64_t in_use = 0;
  int64_t at_mark = 0;  // in use at AllocationTrace::mark()
  int64_t peak = 0;
};

// Records the tensor memory that this thread takes and returns on the CPU during the object's lifetime, including that of a backward pass
// on the CPU, which runs on the calling thread. Converts it from a batch of `num_samples` to one of `size` samples: an allocation whose
// bytes are a multiple of `num_samples` is taken to be one for each sample, all others to be the same for any batch.
class AllocationTrace {
 public:
  AllocationTrace(int64_t num_samples, int64_t size)
      : recorder_(std::make_shared<Recorder>(num_samples, size)), guard_(c10::DebugInfoKind::PROFILER_STATE, recorder_) {}

  void mark() { recorder_->allocations.at_mark = recorder_->allocations.in_use; }
  const Allocations& result() const { return recorder_->allocations; }

 private:
  class Recorder : public c10::MemoryReportingInfoBase {
   public:
    Recorder(int64_t num_samples, int64_t size) : num_samples_(num_samples), size_(size) {}

    void reportMemoryUsage(void* /*memory*/, int64_t change, size_t /*total_allocated*/, size_t /*total_reserved*/,
                           c10::Device device) override {
      if (!device.is_cpu()) return;
      allocations.in_use += change % num_samples_ == 0 ? change / num_samples_ * size_ : change;
      allocations.peak = std::max(allocations.peak, allocations.in_use);
    }
    bool memoryProfilingEnabled() const override { return true; }

    Allocations allocations;

   private:
    int64_t num_samples_, size_;
  };

  std::shared_ptr<Recorder> recorder_;
  c10::DebugInfoGuard guard_;
};

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
  int64_t flops = 0;                      // of the forward pass of a sample of `train_shape`; 0: not known
  int64_t batch_size = 1;                 // of a micro-step on one rank
  int64_t validation_batch_size = 0;      // on one rank; 0: there is no validation
  int64_t num_joined = 1;  // samples of a micro-step that share batch statistics; a step on one sample is run only if this is 1
  int world_size = 1;
  bool on_gpu = false;  // whether to estimate the memory of a GPU, with the same method
};

// These functions run the network on batches of random numbers, with the learning rate 0, which changes the buffers and the state of the
// optimizer. They throw the errors that training would throw, such as UsageError of batch normalisation.

struct StepCost {
  StepTime time;
  Allocations passes;           // of the forward and backward pass of a micro-step
  int64_t optimizer_bytes = 0;  // of its state
  int64_t process_bytes = 0;    // of this process without tensors: LibTorch, its threads and generated code
};
// The optimizer must not have run before, else `optimizer_bytes` is 0.
StepCost measure_step(engine::Network& network, const MemorySetup& setup);

struct ValidationCost {
  double seconds_per_sample = 0;
  int64_t peak_bytes = 0;  // of a validation batch
};
// Also for the pass over the samples that computes their features (training.cache_features); `network` must not take features.
// Zeros if there is no validation.
ValidationCost measure_validation(engine::Network& network, const MemorySetup& setup, task::TestTimeAugmentation tta);

// For rank 0, which saves the checkpoints, after measure_step(). `dataset_bytes`: of the samples that stay in memory.
MemoryEstimate estimate_memory(const engine::Network& network, const MemorySetup& setup, const StepCost& step,
                               const ValidationCost& validation, int64_t dataset_bytes);

}  // namespace trainer::inspection
