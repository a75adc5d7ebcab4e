#include "config/sections.h"

namespace trainer::config {

void RuntimeSection::describe(KeyTable& keys) {
  using device::CudaGraphChoice;
  using device::DeviceChoice, device::FloatType, device::FuseChoice;
  keys.add_choice("device", device, {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}},
                  {.doc = "Device that computes; auto: the GPU if there is one, otherwise the CPU."});
  keys.add_choice("dtype", dtype, {{"float32", FloatType::kFloat32}, {"float64", FloatType::kFloat64}},
                  {.doc = "Type of parameters, and of images without bfloat16 autocast; float64 is for exact comparisons."});
  keys.add("threads", threads,
           {.min = 1,
            .max = 1024,
            .unit = "threads",
            .doc = "Compute threads of this process. The exact bits of the results on a CPU depend on their number. auto: "
                   "OMP_NUM_THREADS if it is set (torchrun's default of 1 does not count), else the cores that the process may use "
                   "(affinity, cgroup) divided by the ranks on this host, at most SLURM_CPUS_PER_TASK."});
  keys.add("deterministic", deterministic,
           {.doc = "Use only deterministic algorithms, and end with an error at an operation that has none. "
                   "Two runs on GPUs of the same type are then equal bit for bit."});
  keys.add("cudnn_benchmark", cudnn_benchmark,
           {.doc = "Let cuDNN try its algorithms in the first steps and keep the fastest; off with deterministic."});
  keys.add("allow_tf32", allow_tf32,
           {.doc = "Round float32 inputs to TF32's 10 bits of mantissa on a GPU, which is faster; auto: for convolutions, but not for "
                   "matrix products, as PyTorch does."});
  keys.add("channels_last", channels_last,
           {.doc = "Store images and filters in NHWC order; auto: where this makes the network faster, but never for float64."});
  keys.add_choice(
      "convolution", convolution, kConvolutionChoices,
      {.doc = "Algorithm of 3×3 convolutions with stride 1 on a CPU: direct, or Winograd's algorithm with tiles of 2×2 (winograd2) or 4×4 "
              "(winograd4) in those layers that it makes faster. auto: winograd4, but direct with bfloat16 autocast on a processor with "
              "AMX. Predictions use direct in layers for which a batch has fewer than 32 tiles. Except with direct, the weights' gradient "
              "of strided 3×3 convolutions and both gradients of depthwise convolutions are this program's too. Compared with direct, "
              "rounding errors in usual networks are as large with winograd2, and three to six times larger with winograd4; they are "
              "relative to the largest nearby values, so the "
              "relative error of a much smaller value has no bound. direct is always used on a GPU, with float64, with float16, without "
              "channels_last and with deterministic."});
  keys.add_choice(
      "fuse", fuse, {{"off", FuseChoice::kOff}, {"auto", FuseChoice::kAuto}, {"on", FuseChoice::kOn}},
      {.doc = "Whether operators are fused. auto: on a CPU in channels_last, batch normalisation and the following "
              "ReLU (also with the addition of a residual between them), ReLU6, hardswish or SiLU are one operator, in "
              "training also with a depthwise convolution between two of them, and normalisation by running statistics is "
              "part of the convolution before it, in float32 and without gradients computed by this program's kernels; on: on a "
              "GPU in channels_last too, only normalisation with the addition and the activation, and not with float64 (these kernels "
              "have never run on a real GPU); off: LibTorch's separate operators are used."});
  keys.add_choice(
      "cuda_graph", cuda_graph, {{"off", CudaGraphChoice::kOff}, {"auto", CudaGraphChoice::kAuto}, {"on", CudaGraphChoice::kOn}},
      {.doc = "Record the kernels of a step once and then launch them with one call, which is faster for small networks, "
              "whose kernels finish before the processor can launch the next. It needs one process, distributed.backend: "
              "auto, training.accumulation_steps: 1, optimizer.skip_zero_grads: false, more GPU memory, and the optimizer "
              "adam, adamw, or sgd with dampening 0; auto: where these conditions are met, and without a graph if a step cannot be "
              "recorded; on: refuse to train instead."});
  keys.add("cuda_allocator", cuda_allocator,
           {.doc = "Settings of the GPU's memory allocator, in the format of PYTORCH_CUDA_ALLOC_CONF (\"expandable_segments:True\"); "
                   "empty: those of the environment variable. Another backend can only be chosen by the variable."});
}

void AmpSection::describe(KeyTable& keys) {
  keys.add("enabled", enabled,
           {.doc = "Compute the forward pass and the loss under autocast; auto: where the type is fast (bfloat16: avx512_bf16 on a CPU, "
                   "compute capability 8 or higher on a GPU; float16: any GPU), but not with float64."});
  keys.add_choice(
      "dtype", dtype, {{"auto", AmpDtype::kAuto}, {"bfloat16", AmpDtype::kBfloat16}, {"float16", AmpDtype::kFloat16}},
      {.doc = "Type of the autocast operations; auto: bfloat16. float16 uses a GradScaler, which the following keys configure."});
  // Limited because the scale and its reciprocal must fit into float32, even after the scale has grown.
  keys.add("init_scale", scaler.init_scale,
           {.min = 1e-30, .max = 1e30, .doc = "Initial scale, the factor by which the loss is multiplied."});
  keys.add(
      "growth_factor", scaler.growth_factor,
      {.min = 1, .min_excluded = true, .doc = "The scale is multiplied by this factor after growth_interval steps without an overflow."});
  keys.add("backoff_factor", scaler.backoff_factor,
           {.min = 0,
            .max = 1,
            .min_excluded = true,
            .max_excluded = true,
            .doc = "The scale is multiplied by this factor after an overflow, and the step is skipped."});
  keys.add("growth_interval", scaler.growth_interval,
           {.min = 1, .unit = "steps", .doc = "Steps without an overflow before the scale grows."});
}

void DistributedSection::describe(KeyTable& keys) {
  using distributed::BackendChoice, distributed::GradientCompression;
  keys.add_choice("backend", backend, {{"auto", BackendChoice::kAuto}, {"gloo", BackendChoice::kGloo}, {"nccl", BackendChoice::kNccl}},
                  {.doc = "Backend that transfers tensors between processes; auto: nccl between GPUs, else gloo."});
  keys.add("init_method", init_method,
           {.doc = "Where the processes meet: env:// (MASTER_ADDR and MASTER_PORT), tcp://HOST:PORT, or file:///PATH on a disk that all "
                   "of them share. The option --init-method takes precedence."});
  keys.add("secret_file", secret_file,
           {.doc = "A file with the same 16 or more random characters on all hosts, by which the processes of a run recognise each "
                   "other; \"\": the secret of the launcher, if it has one (see Trust in running.md)."});
  keys.add(
      "timeout_seconds", timeout_seconds,
      {.min = 1, .max = 86400, .unit = "seconds", .doc = "How long to wait for a process that is late, at the start and during the run."});
  keys.add("hang_seconds", hang_seconds,
           {.min = 1,
            .max = 86400,
            .unit = "seconds",
            .doc = "A process counts as hung if, for this many seconds, it does not respond or remains in the same step, validation batch "
                   "or checkpoint, or at the same file. It is then named in the log, and the run ends."});
  keys.add("straggler_ratio", straggler_ratio,
           {.min = 1,
            .min_excluded = true,
            .doc = "A process for which the others wait is named in the log if its own work (waiting for data, and computing until its "
                   "first gradients are ready) takes more than this many times as long as the median of the other processes."});
  keys.add(
      "sync_batch_norm", sync_batch_norm,
      {.doc = "true: batch normalisation uses the statistics of the batches of all processes together. false: each process uses its own "
              "batch."});
  keys.add("bucket_cap_mb", data_parallel.bucket_cap_mb,
           {.min = 0,
            .min_excluded = true,
            .unit = "MiB",
            .doc = "Gradients are collected in buckets of up to this size, which are sent during backward, or on CPUs after it if the "
                   "gradients of all ranks together are at most 4 MiB."});
  keys.add("broadcast_buffers", data_parallel.broadcast_buffers,
           {.doc = "Copy the running statistics of rank 0 to all ranks before each step; no effect if "
                   "distributed.sync_batch_norm already keeps all of them equal."});
  keys.add("find_unused_parameters", data_parallel.find_unused_parameters,
           {.doc = "Allow parameters on which a step's loss does not depend; costs a traversal of the autograd graph in every step."});
  keys.add("gradient_as_bucket_view", data_parallel.gradient_as_bucket_view,
           {.doc = "Keep gradients in the buckets that are sent, which saves a copy of them."});
  keys.add_choice(
      "gradient_compression", data_parallel.gradient_compression,
      {{"none", GradientCompression::kNone}, {"float16", GradientCompression::kFloat16}, {"bfloat16", GradientCompression::kBfloat16}},
      {.doc = "Send gradients rounded to this type, which halves the traffic."});
}

}  // namespace trainer::config
