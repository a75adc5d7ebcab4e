#include "run/inspection/memory.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "train/engine/train_step.h"
#include "trainer/amp.h"

namespace trainer::inspection {
namespace {

// The most FLOPs, forward and backward, of a measured step with more than three samples. Such a step takes a fraction of a second.
constexpr int64_t kMostFlops = 4'000'000'000;
constexpr int64_t kLargestBatch = 16;
// The timed step takes about a second at most, but has enough samples that the time per sample is about that of a whole batch.
constexpr int64_t kTimedFlops = 20'000'000'000;
constexpr int64_t kFewestTimed = 4;
constexpr int kTimedSteps = 2;
// The same as in distributed/data_parallel.cpp: if the gradients of all ranks together have at most this many bytes, they are summed after
// the backward pass.
constexpr int64_t kSmallExchangeBytes = int64_t{4} * 1024 * 1024;

template <class Tensors>
int64_t bytes_of(const Tensors& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const torch::Tensor& tensor) { return sum + static_cast<int64_t>(tensor.nbytes()); });
}

// Whether gradients already have memory before a backward pass: from an earlier micro-step, or in the buckets.
bool keeps_gradients(const MemorySetup& setup) {
  const auto& experiment = setup.experiment;
  return experiment.training.accumulation_steps > 1 ||
         (setup.world_size > 1 && experiment.distributed.data_parallel.gradient_as_bucket_view);
}

struct RandomBatch {
  torch::Tensor images, targets;

  RandomBatch(const MemorySetup& setup, const device::Placement& placement, const std::vector<int64_t>& shape, int64_t size) {
    auto sizes = shape;
    sizes.insert(sizes.begin(), size);
    images = torch::randn(sizes, torch::TensorOptions().dtype(placement.input_dtype));
    if (shape.size() == 3) images = images.contiguous(placement.memory_format);
    const auto& info = setup.info;
    targets = info.has_masks      ? torch::zeros({size, shape[1], shape[2]}, torch::kUInt8)
              : info.has_labels() ? torch::zeros({size}, torch::kInt64)
                                  : torch::zeros({size, info.num_outputs()}, placement.dtype);
  }
};

// The allocations of a step before its update.
Allocations trace_passes(engine::Network& network, const RandomBatch& batch) {
  AllocationTrace trace;
  engine::run_passes(*network.optimizer, *network.model, [&](int, bool) {
    task::Task::Pass pass;
    {
      const amp::AutocastGuard autocast(torch::kCPU, network.placement.autocast_dtype);
      pass = network.task->forward(*network.model, batch.images, batch.targets);
    }
    trace.mark();
    pass.loss.backward();
  });
  return trace.result();
}

Allocations trace_validation(engine::Network& network, const RandomBatch& batch, task::TestTimeAugmentation tta) {
  const torch::InferenceMode inference;
  network.model->eval();
  AllocationTrace trace;
  {
    const amp::AutocastGuard autocast(torch::kCPU, network.placement.autocast_dtype);
    network.task->evaluate(*network.model, batch.images, batch.targets, tta);
  }
  network.model->train();
  return trace.result();
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A summary with equally frequent classes or, for a regression, with targets of mean 0 and standard deviation 1.
data::TargetSummary assumed_summary(const data::DatasetInfo& info) {
  const auto count = static_cast<size_t>(info.num_outputs());
  data::TargetSummary summary{.num_samples = info.num_outputs()};
  if (info.num_classes > 0) {
    summary.class_counts.assign(count, 1);
  } else {
    summary.mean.assign(count, 0);
    summary.deviation.assign(count, 1);
  }
  return summary;
}

// A step costs about three forward passes.
int64_t size_for(int64_t flops, int64_t flops_of_sample) { return flops / std::max<int64_t>(1, 3 * flops_of_sample); }

void set_summary(engine::Network& network, const data::DatasetInfo& info) {
  if (network.task->needs_target_summary()) network.task->set_target_summary(assumed_summary(info));
}

void set_sizes(BatchAllocations& batches, const MemorySetup& setup) {
  // If no layer's FLOPs are counted, the network may be large, so the smallest batches are used.
  batches.large_size = std::clamp(size_for(kMostFlops, setup.flops == 0 ? kMostFlops : setup.flops), int64_t{3}, kLargestBatch);
  batches.small_size = std::max<int64_t>(2, batches.large_size / 2);
}

// At least two samples, unless batch statistics can be computed from one.
RandomBatch timed_batch(const MemorySetup& setup, const device::Placement& placement) {
  const auto flops = setup.flops == 0 ? kMostFlops : setup.flops;
  const auto size = std::clamp(size_for(kTimedFlops, flops), std::min(kFewestTimed, setup.batch_size), setup.batch_size);
  return {setup, placement, setup.train_shape, std::max(size, std::min<int64_t>(2, setup.num_joined))};
}

Allocations trace_step(engine::Network& network, const MemorySetup& setup, const RandomBatch& batch) {
  auto& optimizer = *network.optimizer;
  if (!keeps_gradients(setup)) optimizer.zero_grad();
  const auto allocations = trace_passes(network, batch);
  // The first pass has perturbed the parameters; this step restores them.
  if (optimizer.needs_second_pass()) optimizer.step(0);
  return allocations;
}

BatchAllocations trace_validations(engine::Network& network, const MemorySetup& setup, task::TestTimeAugmentation tta) {
  BatchAllocations batches;
  set_sizes(batches, setup);
  const auto trace = [&](int64_t size) {
    return trace_validation(network, RandomBatch(setup, network.placement, setup.validation_shape, size), tta);
  };
  batches.small = trace(batches.small_size);
  batches.large = trace(batches.large_size);
  return batches;
}

}  // namespace

int64_t MemoryEstimate::total() const {
  return std::accumulate(items.begin(), items.end(), int64_t{0}, [](int64_t sum, const MemoryItem& item) { return sum + item.bytes; });
}

StepTime measure_step_time(engine::Network& network, const MemorySetup& setup) {
  auto& optimizer = *network.optimizer;
  const auto batch = timed_batch(setup, network.placement);
  trace_step(network, setup, batch);  // fills the caches for this batch size
  double seconds = std::numeric_limits<double>::infinity();
  StepTime time{.update_seconds = seconds};
  for (int step = 0; step < kTimedSteps; ++step) {
    if (!keeps_gradients(setup)) optimizer.zero_grad();
    const auto begin = std::chrono::steady_clock::now();
    trace_passes(network, batch);
    const auto begin_of_update = std::chrono::steady_clock::now();
    optimizer.step(0);
    // The minimum, because other programs on this host can only make a step slower.
    seconds = std::min(seconds, std::chrono::duration<double>(begin_of_update - begin).count());
    time.update_seconds = std::min(time.update_seconds, seconds_since(begin_of_update));
  }
  time.seconds_per_sample = seconds / static_cast<double>(batch.images.size(0));
  return time;
}

FeaturePass measure_feature_pass(engine::Network& network, const MemorySetup& setup) {
  set_summary(network, setup.info);
  const auto batch = timed_batch(setup, network.placement);
  FeaturePass pass{.seconds_per_sample = std::numeric_limits<double>::infinity()};
  for (int i = 0; i <= kTimedSteps; ++i) {  // the first one fills the caches for this batch size
    const auto begin = std::chrono::steady_clock::now();
    trace_validation(network, batch, task::TestTimeAugmentation::kNone);
    if (i > 0) pass.seconds_per_sample = std::min(pass.seconds_per_sample, seconds_since(begin));
  }
  pass.seconds_per_sample /= static_cast<double>(batch.images.size(0));
  pass.allocations = trace_validations(network, setup, task::TestTimeAugmentation::kNone);
  return pass;
}

MeasuredMemory::MeasuredMemory(engine::Network& network, const MemorySetup& setup, const FeaturePass* features) {
  const auto& placement = network.placement;
  auto& optimizer = *network.optimizer;
  set_summary(network, setup.info);
  const auto parameters = network.model->parameters();
  parameter_bytes_ = bytes_of(parameters);
  model_bytes_ = parameter_bytes_ + bytes_of(network.model->buffers());
  set_sizes(train_, setup);
  // Not measured, because it fills the caches of the libraries.
  trace_passes(network, RandomBatch(setup, placement, setup.train_shape, std::min<int64_t>(2, setup.num_joined)));
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) gradient_bytes_ += static_cast<int64_t>(parameter.grad().nbytes());
  }
  {
    const AllocationTrace trace;
    optimizer.step(0);
    optimizer_bytes_ = trace.result().at_end();
  }
  train_.small = trace_step(network, setup, RandomBatch(setup, placement, setup.train_shape, train_.small_size));
  train_.large = trace_step(network, setup, RandomBatch(setup, placement, setup.train_shape, train_.large_size));
  validation_ = features != nullptr ? features->allocations : trace_validations(network, setup, setup.experiment.validation.tta);
  const RandomBatch sample(setup, placement, setup.train_shape, 1);
  const RandomBatch validation_sample(setup, placement, setup.validation_shape, 1);
  sample_bytes_ = bytes_of(std::vector{sample.images, sample.targets});
  validation_sample_bytes_ = bytes_of(std::vector{validation_sample.images, validation_sample.targets});
  const int64_t step_bytes = train_.large.peak() + (keeps_gradients(setup) ? gradient_bytes_ : 0) + sample_bytes_ * train_.large_size;
  process_bytes_ = static_cast<int64_t>(device::memory_in_use(placement)) - model_bytes_ - optimizer_bytes_ - step_bytes;
}

MemoryEstimate MeasuredMemory::estimate(const MemorySetup& setup, int64_t validation_batch_size, int64_t dataset_bytes) const {
  const auto& experiment = setup.experiment;
  const auto at = [](const BatchAllocations& batches, int64_t size) {
    return extrapolate(batches.small, batches.small_size, batches.large, batches.large_size, size);
  };
  const auto step = at(train_, setup.batch_size);
  const auto validation = at(validation_, validation_batch_size);
  const int64_t ema_bytes = experiment.training.ema ? parameter_bytes_ : 0;
  const int64_t mixed_bytes = experiment.dataset.batch_transforms.empty() ? 0 : setup.batch_size * sample_bytes_;
  const int64_t gradients_in_step = keeps_gradients(setup) ? 0 : gradient_bytes_;
  const int64_t num_buffers = data::num_buffers(experiment.dataloader.num_workers.value.value_or(1), experiment.dataloader.prefetch);
  const int64_t batch_bytes = setup.batch_size * sample_bytes_;
  const bool compresses = experiment.distributed.data_parallel.gradient_compression != distributed::GradientCompression::kNone;
  int64_t exchange_bytes = setup.world_size > 1 && !experiment.distributed.data_parallel.gradient_as_bucket_view ? gradient_bytes_ : 0;
  if (setup.world_size > 1 && compresses) exchange_bytes += gradient_bytes_ / 2;
  if (setup.world_size > 1 && !compresses && !setup.on_gpu) {
    // The ranks of a host exchange gradients through shared memory: the gradients of all ranks at once if they are small, otherwise those
    // of this rank and the same number of bytes from other ranks.
    const int64_t all = gradient_bytes_ * setup.world_size;
    exchange_bytes += all <= kSmallExchangeBytes ? all : 2 * gradient_bytes_;
  }
  MemoryEstimate estimate;
  const auto add = [&](const char* name, const char* what, int64_t bytes) {
    if (bytes > 0) estimate.items.push_back({.name = name, .what = what, .bytes = bytes});
  };
  if (!setup.on_gpu) {
    add("process", "the process itself (LibTorch), without tensors", process_bytes_);
    add("dataset", "data set", dataset_bytes);
  }
  add("model", "parameters and buffers", model_bytes_);
  add("gradients", "gradients", gradient_bytes_);
  add("optimizer_state", "optimizer state", optimizer_bytes_);
  add("ema", "average of the parameters (training.ema)", ema_bytes);
  add("exchange", "exchange of gradients", exchange_bytes);
  const int64_t kept = std::max<int64_t>(step.at_mark(), 0);
  const int64_t largest = std::max(step.peak() - gradients_in_step + mixed_bytes, validation.peak());
  add("activations", "activations kept for backward", kept + mixed_bytes);
  add("workspace", "other tensors of a step, or of validation", largest - kept - mixed_bytes);
  if (setup.on_gpu) {
    // engine::DeviceBatches keeps two batches of images.
    add("batches", "batches of training and validation", 2 * (batch_bytes + validation_batch_size * validation_sample_bytes_));
    return estimate;
  }
  add("batches", "batches of the loaders", num_buffers * (batch_bytes + validation_batch_size * validation_sample_bytes_));
  add("checkpoint", "copy for checkpoints (rank 0)", model_bytes_ + optimizer_bytes_ + ema_bytes);
  return estimate;
}

int64_t Allocations::at_mark() const {
  int64_t in_use = 0;
  for (size_t i = 0; i < num_before_mark; ++i) in_use += changes[i];
  return in_use;
}

int64_t Allocations::at_end() const {
  int64_t in_use = 0;
  for (const int64_t change : changes) in_use += change;
  return in_use;
}

int64_t Allocations::peak() const {
  int64_t in_use = 0;
  int64_t peak = 0;
  for (const int64_t change : changes) {
    in_use += change;
    peak = std::max(peak, in_use);
  }
  return peak;
}

class AllocationTrace::Recorder : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*memory*/, int64_t size, size_t /*total_allocated*/, size_t /*total_reserved*/,
                         c10::Device device) override {
    if (device.is_cpu()) allocations.changes.push_back(size);
  }
  bool memoryProfilingEnabled() const override { return true; }

  Allocations allocations;
};

AllocationTrace::AllocationTrace() : recorder_(std::make_shared<Recorder>()), guard_(c10::DebugInfoKind::PROFILER_STATE, recorder_) {}
AllocationTrace::~AllocationTrace() = default;

void AllocationTrace::mark() { recorder_->allocations.num_before_mark = recorder_->allocations.changes.size(); }

const Allocations& AllocationTrace::result() const { return recorder_->allocations; }

Allocations extrapolate(const Allocations& small, int64_t small_size, const Allocations& large, int64_t large_size, int64_t size) {
  const auto at_size = [&](int64_t small_value, int64_t large_value) {
    const auto slope = static_cast<double>(large_value - small_value) / static_cast<double>(large_size - small_size);
    return small_value + static_cast<int64_t>(std::llround(slope * static_cast<double>(size - small_size)));
  };
  Allocations result;
  const auto is_same = [](int64_t a, int64_t b) { return (a < 0) == (b < 0); };
  if (small.num_before_mark != large.num_before_mark || !std::ranges::equal(small.changes, large.changes, is_same)) {
    const int64_t at_mark = at_size(small.at_mark(), large.at_mark());
    const int64_t peak = std::max<int64_t>(at_mark, at_size(small.peak(), large.peak()));
    result.changes = {at_mark, peak - at_mark};
    result.num_before_mark = 1;
    return result;
  }
  for (size_t i = 0; i < small.changes.size(); ++i) result.changes.push_back(at_size(small.changes[i], large.changes[i]));
  result.num_before_mark = small.num_before_mark;
  return result;
}

}  // namespace trainer::inspection
