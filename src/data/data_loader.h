#pragma once
// Batches of a data set in a given order, prefetched by worker threads. A prepared sample depends only on (seed, epoch, sample index,
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

// Tells when a device has copied a batch, for copies that the host does not wait for.
class CopyEvent {
 public:
  virtual ~CopyEvent() = default;
  // To be called once the copies are enqueued.
  virtual void record() = 0;
  // Waits until the copies before the last record() have finished. Without one, returns at once.
  virtual void wait() = 0;
};

struct Batch {
  torch::Tensor images;  // [size, …] in the pipeline's dtype and layout, on the CPU (pinned if requested)
  // int64 [size]; of masks uint8 [size, height, width]; or floating point [size, num_outputs()] in `target_dtype`
  torch::Tensor targets;
  int64_t size = 0;
  CopyEvent* copied = nullptr;  // of the loader; null: the batch has to be copied by the time of the next call of next()
};

// The memory of one batch, sized for a full one.
struct BatchTensors {
  torch::Tensor images;
  torch::Tensor targets;
};

struct LoaderOptions {
  int64_t batch_size = 1;
  int64_t num_workers = 0;  // 0: next() prepares the batch itself, and nothing is prefetched
  int64_t prefetch = 4;     // batches kept ready in addition to the one in use; at least one for each thread
  bool pin_memory = false;
  torch::ScalarType target_dtype = torch::kFloat32;  // of floating-point targets
  uint64_t seed = 0;
  // Set: a sample that cannot be read is left out of its batch, and this is called with its name and the reason, once for each sample, by
  // next(). Empty: next() throws.
  std::function<void(const std::string& text)> report_left_out = {};
  // Makes the event of each buffer; empty: there are none.
  std::function<std::unique_ptr<CopyEvent>()> make_copy_event = {};
};

// The tensors of a batch of options.batch_size samples. On the device "meta" they have sizes and types, but no memory.
BatchTensors make_batch_tensors(const DatasetInfo& info, const Pipeline& pipeline, const LoaderOptions& options,
                                torch::Device device = torch::kCPU);

// Since the construction of a loader.
struct LoaderCounts {
  std::chrono::duration<double> waited{0};  // in next(): for workers or, without workers, preparing batches
  int64_t num_batches = 0;                  // that next() has returned
  int64_t num_ready = 0;                    // batches that were ready when next() was called, summed over these calls
};

// The batches for which a loader has memory, without copy events.
inline int64_t num_buffers(int64_t num_workers, int64_t prefetch) { return num_workers == 0 ? 1 : std::max(prefetch, num_workers) + 1; }

// Not thread-safe: use it from one thread. It owns its worker threads.
class DataLoader {
 public:
  // `dataset` must outlive the loader. Memory for num_buffers() batches, and for one more with copy events, is allocated here and reused.
  DataLoader(const Dataset& dataset, Pipeline pipeline, const LoaderOptions& options);
  ~DataLoader();

  // Starts an epoch over `samples`, in batches of these sizes: 0 to batch_size, together as many as there are samples. The rest of an
  // earlier epoch is dropped.
  void start_epoch(int64_t epoch, SampleList samples, const std::vector<int64_t>& batch_sizes);
  // Each of them once, in batches of batch_size; the last one may be smaller.
  void start_epoch(int64_t epoch, std::vector<int64_t> indices);
  // The next batch, or nullptr after the last. It is valid until the next call of next() or start_epoch(). With copy events, its memory is
  // not written again before its event is ready; next() waits for the event of the batch before the last one, so that the host is never
  // more than two batches ahead of the device, and start_epoch() for all events. If a reader or transform throws, next() throws DataError
  // with the sample's index and name when that batch is due, and also if samples may be left out but all of a larger batch would be; later
  // calls do not skip the batch.
  const Batch* next();
  int64_t batch_size() const;
  LoaderCounts counts() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer::data
