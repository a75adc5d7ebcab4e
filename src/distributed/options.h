#pragma once

namespace trainer::distributed {

enum class BackendChoice { kAuto, kGloo, kNccl };
enum class GradientCompression { kNone, kFloat16, kBfloat16 };

// Options of DataParallel, those of torch.nn.parallel.DistributedDataParallel with its defaults, unless a comment says otherwise.
struct DataParallelOptions {
  double bucket_cap_mb = 25;
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = true;  // false in PyTorch
  // Gradients are sent in this type, as by PyTorch's fp16_compress_hook and bf16_compress_hook.
  GradientCompression gradient_compression = GradientCompression::kNone;
};

}  // namespace trainer::distributed
