#pragma once
// The device, the precision and the threads of the computation.

#include "device/options.h"
#include "trainer/keys.h"
#include "trainer/options.h"

namespace trainer::config {

inline const Choices<device::ConvolutionChoice> kConvolutionChoices = {{"auto", device::ConvolutionChoice::kAuto},
                                                                       {"direct", device::ConvolutionChoice::kDirect},
                                                                       {"winograd2", device::ConvolutionChoice::kWinograd2},
                                                                       {"winograd4", device::ConvolutionChoice::kWinograd4}};
enum class FuseChoice { kAuto, kOff };

struct RuntimeSection {
  device::DeviceChoice device = device::DeviceChoice::kAuto;
  device::FloatType dtype = device::FloatType::kFloat32;
  Auto<int64_t> threads = {};
  bool deterministic = false;
  bool cudnn_benchmark = true;
  Auto<bool> allow_tf32 = {};
  Auto<bool> channels_last = {};
  device::ConvolutionChoice convolution = device::ConvolutionChoice::kAuto;
  FuseChoice fuse = FuseChoice::kAuto;
  std::string cuda_allocator = {};

  void describe(KeyTable& keys) {
    using device::DeviceChoice, device::FloatType;
    keys.add_choice("device", device, {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}},
                    {.doc = "auto: the GPU where there is one."});
    keys.add_choice("dtype", dtype, {{"float32", FloatType::kFloat32}, {"float64", FloatType::kFloat64}},
                    {.doc = "Type of parameters and images; float64 is for exact comparisons."});
    keys.add("threads", threads,
             {.min = 1,
              .max = 1024,
              .unit = "threads",
              .doc = "Compute threads of this process, on whose number the bits of a training on a CPU depend; auto: OMP_NUM_THREADS if it "
                     "is set (torchrun's own 1 does not count), else the cores that the process may use (affinity, cgroup, Slurm) divided "
                     "by the ranks on this host."});
    keys.add(
        "deterministic", deterministic,
        {.doc = "Refuse operations that are not deterministic; on a GPU, two runs on GPUs of the same model are then equal bit for bit."});
    keys.add("cudnn_benchmark", cudnn_benchmark,
             {.doc = "Let cuDNN try its algorithms on the first steps and keep the fastest; off under deterministic."});
    keys.add(
        "allow_tf32", allow_tf32,
        {.doc = "Round float32 inputs to TF32's 10 bits of mantissa on a GPU, which is faster; auto: in convolutions, but not in matrix "
                "products, as PyTorch does."});
    keys.add("channels_last", channels_last,
             {.doc = "Images and filters in NHWC order in memory; auto: where the network gains from it, but never for float64."});
    keys.add_choice(
        "convolution", convolution, kConvolutionChoices,
        {.doc = "Algorithm of 3×3 convolutions with stride 1, on a CPU in float32 and channels_last: direct, or Winograd's with "
                "tiles of 2×2 or 4×4 (faster), for the layers that gain from it. Winograd's rounds relative to the largest values nearby: "
                "in usual networks 2×2 as direct does, 4×4 three to six times more, and without a bound beside much larger values. "
                "auto: winograd4, but direct with bfloat16 autocast on a processor with AMX. Always direct elsewhere, "
                "with float16 and under deterministic."});
    keys.add_choice("fuse", fuse, {{"auto", FuseChoice::kAuto}, {"off", FuseChoice::kOff}},
                    {.doc = "auto: on a CPU, batch normalisation, the addition of a residual and the ReLU behind it are one operator; off: "
                            "LibTorch's operators, one after the other."});
    keys.add(
        "cuda_allocator", cuda_allocator,
        {.doc = "Settings of the GPU's memory allocator, in the format of PYTORCH_CUDA_ALLOC_CONF (\"expandable_segments:True\"); empty: "
                "those of the environment variable, which alone can choose another backend."});
  }
};

enum class AmpDtype { kAuto, kBfloat16, kFloat16 };

struct AmpSection {
  Auto<bool> enabled = {};
  AmpDtype dtype = AmpDtype::kAuto;
  amp::GradScalerOptions scaler = {};

  void describe(KeyTable& keys) {
    keys.add("enabled", enabled,
             {.doc = "Forward and loss under autocast; auto: where bfloat16 is fast (avx512_bf16 or AMX on a CPU, compute capability 8 on "
                     "a GPU)."});
    keys.add_choice("dtype", dtype, {{"auto", AmpDtype::kAuto}, {"bfloat16", AmpDtype::kBfloat16}, {"float16", AmpDtype::kFloat16}},
                    {.doc = "Type of the autocast operations; auto: bfloat16. float16 brings the GradScaler with it, whose keys follow."});
    // The scale and its reciprocal are float32, and the scale may grow.
    keys.add("init_scale", scaler.init_scale, {.min = 1e-30, .max = 1e30, .doc = "What the loss is multiplied by at first."});
    keys.add("growth_factor", scaler.growth_factor,
             {.min = 1, .min_excluded = true, .doc = "The scale grows by this factor after growth_interval steps without an overflow."});
    keys.add("backoff_factor", scaler.backoff_factor,
             {.min = 0,
              .max = 1,
              .min_excluded = true,
              .max_excluded = true,
              .doc = "The scale falls by this factor at an overflow, and the step is skipped."});
    keys.add("growth_interval", scaler.growth_interval,
             {.min = 1, .unit = "steps", .doc = "Steps without an overflow before the scale grows."});
  }
};

}  // namespace trainer::config
