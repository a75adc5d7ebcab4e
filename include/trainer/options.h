#pragma once
// The options of the library, with their default values. This header needs no LibTorch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainer::amp {

// As in torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // steps without an overflow before the scale grows
  bool enabled = true;             // false: losses and gradients are not scaled, and step() only calls the optimizer's
};

}  // namespace trainer::amp

namespace trainer::distributed {

enum class BackendChoice { kAuto, kGloo, kNccl };
enum class GradientCompression { kNone, kFloat16, kBfloat16 };

// As in torch.nn.parallel.DistributedDataParallel.
struct DataParallelOptions {
  double bucket_cap_mb = 25;
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  // Gradients are views of the buckets, which saves a copy. torch::optim::Optimizer::zero_grad() does not support such gradients.
  bool gradient_as_bucket_view = false;
  // The type in which gradients are sent, as with PyTorch's fp16_compress_hook and bf16_compress_hook.
  GradientCompression gradient_compression = GradientCompression::kNone;
};

}  // namespace trainer::distributed

namespace trainer::data {

// How a training set is divided among ranks if its size is not a multiple of their number. kPad repeats some samples and kDrop skips some,
// like PyTorch's DistributedSampler with drop_last false and true; kExact uses each sample once.
enum class Shards { kPad, kDrop, kExact };

// As in torch.utils.data.distributed.DistributedSampler; `shards` replaces drop_last.
struct DistributedSamplerOptions {
  bool shuffle = true;
  uint64_t seed = 0;
  Shards shards = Shards::kPad;
};

// How batches are prepared; the content of the batches does not depend on these options.
struct LoadingOptions {
  int64_t num_workers = 1;  // number of threads; 0: the training thread prepares each batch when it needs it
  int64_t prefetch = 4;     // number of batches that are kept ready, at least one for each thread
};

}  // namespace trainer::data

namespace trainer::task {

// Test-time augmentation: the views of each image over which outputs are averaged.
enum class TestTimeAugmentation { kNone, kFlip, kFlipAndShift };

}  // namespace trainer::task

namespace trainer::device {

enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class FloatType { kFloat32, kFloat64 };
enum class AutocastType { kBfloat16, kFloat16 };
// See the keys runtime.convolution, runtime.fuse and runtime.cuda_graph in docs/configuration.md.
enum class ConvolutionChoice { kAuto, kDirect, kWinograd2, kWinograd4 };
enum class FuseChoice { kOff, kAuto, kOn };
enum class CudaGraphChoice { kOff, kAuto, kOn };

struct PlacementOptions {
  DeviceChoice device = DeviceChoice::kAuto;
  FloatType dtype = FloatType::kFloat32;
  std::optional<bool> autocast = {};  // not set: true if `autocast_dtype` is fast on the device, but false for float64
  AutocastType autocast_dtype = AutocastType::kBfloat16;
  std::optional<int64_t> num_threads = {};  // not set: depends on the processors that this process may use
  std::optional<bool> channels_last = {};   // not set: Model::prefers_channels_last(), but false for float64
  std::optional<bool> pin_memory = {};      // not set: true if a GPU is used
  std::optional<bool> allow_tf32 = {};      // not set: only in convolutions, which is LibTorch's default
  ConvolutionChoice convolution = ConvolutionChoice::kAuto;
  FuseChoice fuse = FuseChoice::kAuto;
  bool deterministic = false;
  bool cudnn_benchmark = true;  // has no effect with `deterministic`
  CudaGraphChoice cuda_graph = CudaGraphChoice::kOff;
};

}  // namespace trainer::device

namespace trainer::optim {

// Parameters with their own learning rate or weight decay.
struct ParameterGroupOptions {
  std::vector<std::string> parameters;      // names, as in ParameterOptions
  double lr_factor = 1;                     // multiplies the learning rate of the other parameters
  std::optional<double> weight_decay = {};  // instead of the optimizer's
};

// Which parameters of a network are trained, and how. Names are those of layers and parameters, or their beginnings up to a dot.
struct ParameterOptions {
  std::vector<ParameterGroupOptions> groups = {};  // the first one that names a parameter applies to it
  bool decay_norm_and_bias = true;                 // false: only weights with two or more dimensions have weight decay
  double layer_decay = 1;                          // multiplies the learning rate of a layer once for every layer after it
  // Their parameters are not trained, and their batch normalisation keeps its statistics. "backbone": all but the last layer.
  std::vector<std::string> freeze = {};
  std::optional<int64_t> unfreeze_after = {};  // number of epochs after which they are trained too; their statistics stay
};

// A linear warm-up before a schedule. A schedule with an end, such as cosine, then covers the remaining steps.
struct WarmupOptions {
  int64_t steps = 0;
  double epochs = 0;  // instead of steps
  double start_factor = 0.01;

  // The length in steps. A warm-up that is given in epochs has at least one step.
  int64_t length(int64_t steps_per_epoch) const {
    return epochs == 0 ? steps : std::max<int64_t>(1, std::llround(epochs * static_cast<double>(steps_per_epoch)));
  }
};

struct EmaOptions {
  double decay = 0.999;  // fraction of the average that is kept in each update, from 0 to below 1
  // Whether to keep less at first: nothing in the first update, then at most (1 + n) / (10 + n) for n = 0, 1, …
  bool warmup = true;
};

}  // namespace trainer::optim

namespace trainer::engine {

// Training images are scaled down in the epochs that end before a fraction of all epochs.
struct SmallerImages {
  int64_t size = 0;  // of the shorter edge, in pixels
  double until = 0;  // the fraction, greater than 0 and less than 1
};

struct PlanOptions {
  // `batch_size`: samples of a rank in a micro-step; `global_batch_size`: samples of all ranks together in a step. If neither is set,
  // `batch_size` is 128.
  std::optional<int64_t> batch_size = {};
  std::optional<int64_t> global_batch_size = {};
  int64_t accumulation_steps = 1;
  bool drop_last = true;
  data::Shards shards = data::Shards::kPad;
  // Exactly one of `epochs` and `steps` must be set.
  std::optional<int64_t> epochs = {};
  std::optional<int64_t> steps = {};
  // Each epoch has the size of the first item whose fraction it does not exceed, else images of full size. Both must increase. Needs
  // `epochs`.
  std::vector<SmallerImages> size_schedule = {};
};

// Which ranks read the samples, see the key dataset.distribution in docs/configuration.md.
enum class Distribution { kLocal, kScatter, kBroadcast };

struct ValidationOptions {
  std::optional<int64_t> every_epochs = 1;
  std::optional<int64_t> every_steps = {};
  int64_t batch_size = 256;
  task::TestTimeAugmentation tta = task::TestTimeAugmentation::kNone;

  bool is_off() const { return !every_epochs && !every_steps; }
};

enum class MonitorMode { kAuto, kMax, kMin };

struct MonitorOptions {
  std::string metric = "auto";  // such as "validation/top1"; auto: Task::default_metric()
  MonitorMode mode = MonitorMode::kAuto;
};

struct EarlyStoppingOptions {
  int64_t patience = 10;  // consecutive validations without improvement
  double min_delta = 0;   // minimum improvement, in the metric's own unit
};

// What to do after a step whose loss or gradients are not finite: end the run, or continue unless it is the tenth in a row.
enum class OnNonFinite { kStop, kSkip };

struct LoopOptions {
  uint64_t seed = 42;
  std::optional<double> max_grad_norm = {};
  OnNonFinite on_non_finite = OnNonFinite::kStop;
  std::optional<EarlyStoppingOptions> early_stopping = {};
  ValidationOptions validation = {};
  MonitorOptions monitor = {};
  // The number of epochs or steps between two checkpoints.
  std::optional<int64_t> checkpoint_every_epochs = 1;
  std::optional<int64_t> checkpoint_every_steps = {};
  int64_t log_every_steps = 50;
  // A rank is named in the log if its own work takes more than this many times the median of the other ranks.
  double straggler_ratio = 1.5;
};

}  // namespace trainer::engine
