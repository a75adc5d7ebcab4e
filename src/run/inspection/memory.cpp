#include "run/inspection/memory.h"

#include <array>
#include <chrono>
#include <limits>
#include <numeric>

#include "train/engine/train_step.h"
#include "trainer/amp.h"

namespace trainer::inspection {
namespace {

// The FLOPs, forward and backward, of a measured step of more than eleven samples. Such a step takes a fraction of a second.
constexpr int64_t kMostFlops = 20'000'000'000;
// The same as in distributed/data_parallel.cpp: if the gradients of all ranks together have at most this many bytes, they are summed after
// the backward pass.
constexpr int64_t kSmallExchangeBytes = int64_t{4} * 1024 * 1024;

template <class Tensors>
int64_t bytes_of(const Tensors& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0}, [](int64_t sum, const torch::Tensor& tensor) {
    return sum + (tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0);
  });
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

  int64_t bytes() const { return bytes_of(std::array{images, targets}); }
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Assumes equally frequent classes or, for a regression, targets of mean 0 and standard deviation 1.
void set_summary(engine::Network& network, const data::DatasetInfo& info) {
  if (!network.task->needs_target_summary()) return;
  const auto count = static_cast<size_t>(info.num_outputs());
  data::TargetSummary summary{.num_samples = info.num_outputs()};
  if (info.num_classes > 0) {
    summary.class_counts.assign(count, 1);
  } else {
    summary.mean.assign(count, 0);
    summary.deviation.assign(count, 1);
  }
  network.task->set_target_summary(summary);
}

// The number of samples to measure for batches of `size` samples: all if they are few. Otherwise a prime number, of which few sizes of
// parameters are multiples, so that AllocationTrace knows what belongs to the samples.
int64_t num_measured(int64_t flops, int64_t size) {
  // A step costs about three forward passes. If no layer's FLOPs are counted, the network may be large.
  const int64_t most = flops == 0 ? 0 : kMostFlops / (3 * flops);
  int64_t number = std::min<int64_t>(size, 11);
  for (const int64_t more : {23, 47, 97, 197}) {
    if (more <= std::min(most, size)) number = more;
  }
  return size <= most ? size : number;
}

// Calls `run`, which returns its time in seconds, twice or, if it is quick, three times. Returns the least time, because the first run
// fills caches and other programs on this host can only make one slower.
template <class Run>
double least_time(const Run& run) {
  double seconds = run();
  for (int i = 0; i < 1 || (i < 2 && seconds < 1); ++i) seconds = std::min(seconds, run());
  return seconds;
}

}  // namespace

int64_t MemoryEstimate::total() const {
  return std::accumulate(items.begin(), items.end(), int64_t{0}, [](int64_t sum, const MemoryItem& item) { return sum + item.bytes; });
}

StepCost measure_step(engine::Network& network, const MemorySetup& setup) {
  auto& optimizer = *network.optimizer;
  set_summary(network, setup.info);
  StepCost cost;
  cost.time.update_seconds = std::numeric_limits<double>::infinity();
  const auto run = [&](const RandomBatch& batch, int64_t size) {
    if (!keeps_gradients(setup)) optimizer.zero_grad();
    AllocationTrace trace(batch.images.size(0), size);
    const auto begin = Clock::now();
    engine::run_passes(optimizer, *network.model, [&](int, bool) {
      task::Task::Pass pass;
      {
        const amp::AutocastGuard autocast(torch::kCPU, network.placement.autocast_dtype);
        pass = network.task->forward(*network.model, batch.images, batch.targets);
      }
      trace.mark();
      pass.loss.backward();
    });
    const double seconds = seconds_since(begin);
    cost.passes = trace.result();
    const auto begin_of_update = Clock::now();
    optimizer.step(0);
    cost.time.update_seconds = std::min(cost.time.update_seconds, seconds_since(begin_of_update));
    cost.optimizer_bytes += trace.result().in_use - cost.passes.in_use;
    return seconds;
  };
  const int64_t least = std::min<int64_t>(2, setup.num_joined);
  const RandomBatch small(setup, network.placement, setup.train_shape, least);
  run(small, least);
  cost.process_bytes = static_cast<int64_t>(device::memory_in_use(network.placement)) - bytes_of(network.model->parameters()) -
                       bytes_of(network.model->buffers()) - cost.optimizer_bytes - cost.passes.peak - small.bytes();
  const RandomBatch batch(setup, network.placement, setup.train_shape, std::max(least, num_measured(setup.flops, setup.batch_size)));
  cost.time.seconds_per_sample = least_time([&] { return run(batch, setup.batch_size); }) / static_cast<double>(batch.images.size(0));
  return cost;
}

ValidationCost measure_validation(engine::Network& network, const MemorySetup& setup, task::TestTimeAugmentation tta) {
  if (setup.validation_batch_size == 0) return {};
  set_summary(network, setup.info);
  const torch::InferenceMode inference;
  const amp::AutocastGuard autocast(torch::kCPU, network.placement.autocast_dtype);
  const int64_t size = setup.validation_batch_size;
  const RandomBatch batch(setup, network.placement, setup.validation_shape, num_measured(setup.flops, size));
  ValidationCost cost;
  network.model->eval();
  const double seconds = least_time([&] {
    const AllocationTrace trace(batch.images.size(0), size);
    const auto begin = Clock::now();
    network.task->evaluate(*network.model, batch.images, batch.targets, tta);
    cost.peak_bytes = trace.result().peak;
    return seconds_since(begin);
  });
  network.model->train();
  cost.seconds_per_sample = seconds / static_cast<double>(batch.images.size(0));
  return cost;
}

MemoryEstimate estimate_memory(const engine::Network& network, const MemorySetup& setup, const StepCost& step,
                               const ValidationCost& validation, int64_t dataset_bytes) {
  const auto& experiment = setup.experiment;
  const int64_t parameter_bytes = bytes_of(network.model->parameters());
  const int64_t model_bytes = parameter_bytes + bytes_of(network.model->buffers());
  int64_t gradient_bytes = 0;
  for (const auto& parameter : network.model->parameters()) gradient_bytes += bytes_of(std::array{parameter.grad()});
  const int64_t sample_bytes = RandomBatch(setup, network.placement, setup.train_shape, 1).bytes();
  const int64_t validation_sample_bytes = RandomBatch(setup, network.placement, setup.validation_shape, 1).bytes();
  const int64_t ema_bytes = experiment.training.ema ? parameter_bytes : 0;
  const int64_t mixed_bytes = experiment.dataset.batch_transforms.empty() ? 0 : setup.batch_size * sample_bytes;
  const int64_t gradients_in_step = keeps_gradients(setup) ? 0 : gradient_bytes;
  const int64_t num_buffers = data::num_buffers(experiment.dataloader.num_workers.value.value_or(1), experiment.dataloader.prefetch);
  const int64_t batch_bytes = setup.batch_size * sample_bytes;
  const bool compresses = experiment.distributed.data_parallel.gradient_compression != distributed::GradientCompression::kNone;
  int64_t exchange_bytes = setup.world_size > 1 && !experiment.distributed.data_parallel.gradient_as_bucket_view ? gradient_bytes : 0;
  if (setup.world_size > 1 && compresses) exchange_bytes += gradient_bytes / 2;
  if (setup.world_size > 1 && !compresses && !setup.on_gpu) {
    // The ranks of a host exchange gradients through shared memory: the gradients of all ranks at once if they are small, otherwise those
    // of this rank and the same number of bytes from other ranks.
    const int64_t all = gradient_bytes * setup.world_size;
    exchange_bytes += all <= kSmallExchangeBytes ? all : 2 * gradient_bytes;
  }
  MemoryEstimate estimate;
  const auto add = [&](const char* name, const char* what, int64_t bytes) {
    if (bytes > 0) estimate.items.push_back({.name = name, .what = what, .bytes = bytes});
  };
  if (!setup.on_gpu) {
    add("process", "the process itself (LibTorch), without tensors", step.process_bytes);
    add("dataset", "data set", dataset_bytes);
  }
  add("model", "parameters and buffers", model_bytes);
  add("gradients", "gradients", gradient_bytes);
  add("optimizer_state", "optimizer state", step.optimizer_bytes);
  add("ema", "average of the parameters (training.ema)", ema_bytes);
  add("exchange", "exchange of gradients", exchange_bytes);
  const int64_t kept = std::max<int64_t>(step.passes.at_mark, 0);
  const int64_t largest = std::max({step.passes.peak - gradients_in_step + mixed_bytes, validation.peak_bytes, kept + mixed_bytes});
  add("activations", "activations kept for backward", kept + mixed_bytes);
  add("workspace", "other tensors of a step, or of validation", largest - kept - mixed_bytes);
  if (setup.on_gpu) {
    // engine::DeviceBatches keeps two batches of images.
    add("batches", "batches of training and validation", 2 * (batch_bytes + setup.validation_batch_size * validation_sample_bytes));
    return estimate;
  }
  add("batches", "batches of the loaders", num_buffers * (batch_bytes + setup.validation_batch_size * validation_sample_bytes));
  add("checkpoint", "copy for checkpoints (rank 0)", model_bytes + step.optimizer_bytes + ema_bytes);
  return estimate;
}

}  // namespace trainer::inspection
