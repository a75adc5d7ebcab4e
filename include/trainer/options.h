#pragma once
// Options of what the library offers, with their default values. This header needs no LibTorch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainer::amp {

// Options of GradScaler, those of torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;       // what the loss is multiplied by at first
  double growth_factor = 2;        // > 1
  double backoff_factor = 0.5;     // between 0 and 1
  int64_t growth_interval = 2000;  // steps without an overflow before the scale grows
  bool enabled = true;             // false: losses and gradients are not scaled, and step() is the optimizer's
};

}  // namespace trainer::amp

namespace trainer::distributed {

enum class BackendChoice { kAuto, kGloo, kNccl };
enum class GradientCompression { kNone, kFloat16, kBfloat16 };

// Options of DistributedDataParallel, those of torch.nn.parallel.DistributedDataParallel with its defaults.
struct DataParallelOptions {
  double bucket_cap_mb = 25;
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  // Gradients are views of the buckets, which saves a copy. torch::optim::Optimizer::zero_grad() refuses such gradients.
  bool gradient_as_bucket_view = false;
  // Gradients are sent in this type, as by PyTorch's fp16_compress_hook and bf16_compress_hook.
  GradientCompression gradient_compression = GradientCompression::kNone;
};

}  // namespace trainer::distributed

namespace trainer::data {

// How ranks share a training set whose size is not a multiple of their number: repeat some samples or leave some out, as PyTorch's
// DistributedSampler does with drop_last false and true, or take each of them once.
enum class Shards { kPad, kDrop, kExact };

// Options of DistributedSampler, those of torch.utils.data.distributed.DistributedSampler; its drop_last is `shards` here.
struct DistributedSamplerOptions {
  bool shuffle = true;
  uint64_t seed = 0;
  Shards shards = Shards::kPad;
};

// How batches are prepared; what they hold does not depend on it.
struct LoadingOptions {
  int64_t num_workers = 1;  // threads; 0: the training thread prepares each batch when it needs it
  int64_t prefetch = 4;     // batches that are kept ready, at least one for each thread
};

}  // namespace trainer::data

namespace trainer::task {

// Test-time augmentation: over which views of each image outputs are averaged.
enum class TestTimeAugmentation { kNone, kFlip, kFlipAndShift };

}  // namespace trainer::task

namespace trainer::device {

enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class FloatType { kFloat32, kFloat64 };
enum class AutocastType { kBfloat16, kFloat16 };
// Of 3x3 convolutions with stride 1 on a CPU, see runtime.convolution.
enum class ConvolutionChoice { kAuto, kDirect, kWinograd2, kWinograd4 };

// Whether the steps of a training on a GPU are repeated from a CUDA graph: kAuto where the number of processes and micro-steps and the
// optimizer allow it; kOn: refuses to train otherwise.
enum class CudaGraphChoice { kOff, kAuto, kOn };

// What a program wants of its device.
struct PlacementOptions {
  DeviceChoice device = DeviceChoice::kAuto;
  FloatType dtype = FloatType::kFloat32;
  std::optional<bool> autocast = {};  // not set: where bfloat16 is fast
  AutocastType autocast_dtype = AutocastType::kBfloat16;
  std::optional<int64_t> num_threads = {};  // not set: as many as suit the processors that this process may use
  std::optional<bool> channels_last = {};   // not set: but for float64
  std::optional<bool> pin_memory = {};      // not set: with a GPU
  std::optional<bool> allow_tf32 = {};      // not set: as LibTorch does, in convolutions alone
  ConvolutionChoice convolution = ConvolutionChoice::kAuto;
  bool fuse = true;  // batch normalisation with what follows it, on a CPU
  bool deterministic = false;
  bool cudnn_benchmark = true;  // without effect under `deterministic`
  CudaGraphChoice cuda_graph = CudaGraphChoice::kOff;
};

}  // namespace trainer::device

namespace trainer::optim {

// Parameters with a learning rate or a weight decay of their own.
struct ParameterGroupOptions {
  std::vector<std::string> parameters;      // layers and parameters, by their names or the beginnings of them up to a dot
  double lr_factor = 1;                     // on the learning rate of the others
  std::optional<double> weight_decay = {};  // instead of the optimizer's
};

// A linear warm-up before a schedule, which then covers the remaining steps.
struct WarmupOptions {
  int64_t steps = 0;
  double epochs = 0;  // instead of steps
  double start_factor = 0.01;

  // In steps. A warm-up of epochs has at least one.
  int64_t length(int64_t steps_per_epoch) const {
    return epochs == 0 ? steps : std::max<int64_t>(1, std::llround(epochs * static_cast<double>(steps_per_epoch)));
  }
};

// Options of Ema.
struct EmaOptions {
  double decay = 0.999;  // part of the average that is kept in each update, from 0 to below 1
  bool warmup = true;    // keep less at first: (1 + n) / (10 + n) in the n-th update
};

}  // namespace trainer::optim

namespace trainer::engine {

// How samples become batches and steps.
struct PlanOptions {
  // Of a rank in a micro-step, or of all ranks together in a step; neither: 128 of a rank.
  std::optional<int64_t> batch_size = {};
  std::optional<int64_t> global_batch_size = {};
  int64_t accumulation_steps = 1;
  bool drop_last = true;
  data::Shards shards = data::Shards::kPad;
  // Exactly one of them.
  std::optional<int64_t> epochs = {};
  std::optional<int64_t> steps = {};
};

// Which rank reads the samples of a rank, and how they reach it.
enum class Distribution { kLocal, kScatter, kBroadcast };

struct ValidationOptions {
  std::optional<int64_t> every_epochs = 1;
  std::optional<int64_t> every_steps = {};
  int64_t batch_size = 256;
  task::TestTimeAugmentation tta = task::TestTimeAugmentation::kNone;

  bool is_off() const { return !every_epochs && !every_steps; }
};

enum class MonitorMode { kAuto, kMax, kMin };

// What the best validation is chosen by.
struct MonitorOptions {
  std::string metric = "auto";  // "validation/top1"; auto: Task::default_metric()
  MonitorMode mode = MonitorMode::kAuto;
};

struct EarlyStoppingOptions {
  int64_t patience = 10;  // validations in a row that were not better
  double min_delta = 0;   // by which a better one differs at least, in the metric's own unit
};

// What follows a step whose loss or gradients are not finite: the run ends, or goes on up to ten times in a row.
enum class OnNonFinite { kStop, kSkip };

// Options of the training loop.
struct LoopOptions {
  uint64_t seed = 42;
  std::optional<double> max_grad_norm = {};
  OnNonFinite on_non_finite = OnNonFinite::kStop;
  std::optional<EarlyStoppingOptions> early_stopping = {};
  ValidationOptions validation = {};
  MonitorOptions monitor = {};
  // Between two checkpoints.
  std::optional<int64_t> checkpoint_every_epochs = 1;
  std::optional<int64_t> checkpoint_every_steps = {};
  int64_t log_every_steps = 50;
  double straggler_ratio = 1.5;
};

}  // namespace trainer::engine
