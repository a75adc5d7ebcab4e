#pragma once
// Options of what the library offers, with their default values. This header needs no LibTorch.

#include <cstdint>

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

}  // namespace trainer::data

namespace trainer::task {

// Test-time augmentation: over which views of each image outputs are averaged.
enum class TestTimeAugmentation { kNone, kFlip, kFlipAndShift };

}  // namespace trainer::task
