#pragma once
// Loads batches of a data set in a given order, prefetched by worker threads. A prepared sample depends only on (seed, epoch, sample index,
// occurrence), not on the number of threads or their timing.

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/pipeline.h"

namespace trainer::data {

// Signals that a device has copied a batch, for asynchronous copies.
class CopyEvent {
 public:
  virtual ~CopyEvent() = default;
  // Must be called after the copies are enqueued.
  virtual void record() = 0;
  // Waits until the copies before the last record() have finished. Returns immediately if record() was never called.
  virtual void wait() = 0;
};

struct Batch {
  torch::Tensor images;  // [size, …] in the pipeline's dtype and layout, on the CPU (pinned if requested)
  // int64 [size] for labels, uint8 [size, height, width] for masks, [size, num_outputs()] in `target_dtype` for classes,
  // and in float64 for numbers
  torch::Tensor targets;
  int64_t size = 0;
  CopyEvent* copied = nullptr;  // owned by the loader; if null, the batch must be copied before the next call of next()
  // The position of each sample in the batch as it was asked for; those of skipped samples are missing.
  std::vector<int64_t> positions = {};
};

// The memory of one full batch.
struct BatchTensors {
  torch::Tensor images;
  torch::Tensor targets;
};

struct LoaderOptions {
  int64_t batch_size = 1;
  int64_t num_workers = 0;  // if 0, next() prepares the batch itself, and nothing is prefetched
  int64_t prefetch = 4;     // number of batches to keep ready besides the one that next() has returned; at least one per worker
  bool pin_memory = false;
  torch::ScalarType target_dtype = torch::kFloat32;  // the type of targets that are any number of classes
  uint64_t seed = 0;
  // If set, a sample that cannot be read is skipped, and next() calls this once per sample, with its name and the reason. If empty, next()
  // throws.
  std::function<void(const std::string& text)> report_skipped = {};
  // Creates the event of each buffer; if empty, there are no events.
  std::function<std::unique_ptr<CopyEvent>()> make_copy_event = {};
};

// Returns the tensors of a batch of options.batch_size samples. On the device "meta" they have sizes and types, but no memory.
BatchTensors make_batch_tensors(const DatasetInfo& info, const Pipeline& pipeline, const LoaderOptions& options,
                                torch::Device device = torch::kCPU);

// Counts since the construction of a loader.
struct LoaderCounts {
  std::chrono::duration<double> waited{0};  // time spent in next(), waiting for workers or, without workers, preparing batches
  int64_t num_batches = 0;                  // number of batches that next() has returned
  int64_t num_ready = 0;                    // number of batches that were ready when next() was called, summed over all calls
};

// The number of batches for which a loader without copy events has memory.
inline int64_t num_buffers(int64_t num_workers, int64_t prefetch) { return num_workers == 0 ? 1 : std::max(prefetch, num_workers) + 1; }

// Not thread-safe. Owns its worker threads.
class DataLoader {
 public:
  // `dataset` must outlive the loader. Allocates memory for num_buffers() batches, and for one more with copy events; all epochs reuse it.
  DataLoader(const Dataset& dataset, Pipeline pipeline, const LoaderOptions& options);
  ~DataLoader();

  // Starts an epoch over `samples`. The sizes of the batches, each 0 to batch_size, must add up to the number of samples. Drops the rest of
  // the previous epoch.
  void start_epoch(int64_t epoch, SampleList samples, const std::vector<int64_t>& batch_sizes);
  // Starts an epoch over each of `indices` once, in batches of batch_size; the last batch may be smaller.
  void start_epoch(int64_t epoch, std::vector<int64_t> indices);
  // Returns the next batch, or nullptr after the last. It is valid until the next call of next() or start_epoch(). With copy events, next()
  // waits for the event of the batch before the one that it returned last, so that the host is never more than two batches ahead of the
  // device; start_epoch() waits for all events. Throws DataError with the sample when its batch is due, if a sample cannot be read and may
  // not be skipped, or has no valid target; also if none of the samples of a batch of 8 or more can be read.
  const Batch* next();
  int64_t batch_size() const;
  LoaderCounts counts() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer::data
