#include "device/placement.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "trainer/error.h"

namespace trainer::device {
namespace {

Placement place(const PlacementOptions& options = {}, const CudaModule* cuda = nullptr) {
  return choose_placement(options, {.num_threads = 3}, {.module = cuda});
}

int two_devices() { return 2; }
int hopper(int) { return 9; }
int volta(int) { return 7; }
uint64_t peak(int) { return 12345; }
void set_device(int) {}
std::string works(int) { return ""; }

CudaModule gpus(int (*count)(), int (*major)(int)) {
  CudaModule module;
  module.device_count = count;
  module.compute_capability_major = major;
  module.peak_memory = &peak;
  module.set_device = &set_device;
  module.device_refusal = &works;
  return module;
}

TEST(Placement, AutoOnACpu) {
  const auto placement = place();
  EXPECT_TRUE(placement.device.is_cpu());
  EXPECT_EQ(placement.autocast_dtype.has_value(), cpu_has_fast_bfloat16());
  EXPECT_EQ(placement.input_dtype, cpu_has_fast_bfloat16() ? torch::kBFloat16 : torch::kFloat32);
  EXPECT_EQ(placement.memory_format, torch::MemoryFormat::ChannelsLast);
  EXPECT_EQ(placement.num_threads, 3);
  EXPECT_FALSE(placement.pin_memory);
}

TEST(Placement, AutoOnAGpu) {
  const auto new_gpu = gpus(&two_devices, &hopper);
  const auto placement = place({}, &new_gpu);
  EXPECT_TRUE(placement.device.is_cuda());
  EXPECT_EQ(placement.autocast_dtype, torch::kBFloat16);
  EXPECT_TRUE(placement.pin_memory);
  EXPECT_EQ(memory_in_use(placement), 12345U);
  const auto old_gpu = gpus(&two_devices, &volta);
  EXPECT_EQ(place({}, &old_gpu).autocast_dtype, std::nullopt);
  EXPECT_TRUE(place({.device = DeviceChoice::kCpu}, &new_gpu).device.is_cpu());
}

TEST(Placement, GraphsNeedAGpu) {
  const auto gpu = gpus(&two_devices, &hopper);
  EXPECT_EQ(place({.cuda_graph = CudaGraphChoice::kOn}, &gpu).cuda_graph, CudaGraphChoice::kOn);
  EXPECT_EQ(place({.cuda_graph = CudaGraphChoice::kAuto}).cuda_graph, CudaGraphChoice::kOff);
  try {
    place({.cuda_graph = CudaGraphChoice::kOn});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "runtime.cuda_graph: on needs a GPU, but this process uses the CPU; set auto or off");
  }
}

TEST(Placement, TheGpuHasTheIndexOfTheLocalRank) {
  const auto index = [](int local_rank, int (*count)()) {
    const auto module = gpus(count, &hopper);
    return choose_placement({}, {.local_rank = local_rank}, {.module = &module}).device.index();
  };
  EXPECT_EQ(index(0, &two_devices), 0);
  EXPECT_EQ(index(1, &two_devices), 1);
  // If only one GPU is visible, as under Slurm's --gpus-per-task, it belongs to this rank.
  EXPECT_EQ(index(3, [] { return 1; }), 0);
  try {
    index(2, &two_devices);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "local rank 2 has no GPU, because the number of visible GPUs on this host is 2; start one process per GPU "
                 "(--nproc-per-node 2), or set runtime.device: cpu");
  }
}

TEST(Placement, ABrokenDriverIsNamedWhenAGpuIsAskedFor) {
  const CudaAccess broken{.refusal = "CUDA driver version is insufficient for CUDA runtime version"};
  EXPECT_TRUE(choose_placement({}, {}, broken).device.is_cpu());
  try {
    choose_placement({.device = DeviceChoice::kCuda}, {}, broken);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "runtime.device: cuda is set, but CUDA cannot be used: CUDA driver version is insufficient for CUDA runtime version");
  }
}

TEST(Placement, AGpuThatLibTorchCannotUseIsRefusedByName) {
  auto old_gpu = gpus(&two_devices, &volta);
  old_gpu.device_refusal = [](int) { return std::string("Tesla V100 (compute capability 7.0): CUDA error: no kernel image is available"); };
  try {
    place({}, &old_gpu);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "cuda:0 cannot be used: Tesla V100 (compute capability 7.0): CUDA error: no kernel image is available; set "
                 "runtime.device: cpu, or set CUDA_VISIBLE_DEVICES to another GPU");
  }
  EXPECT_TRUE(place({.device = DeviceChoice::kCpu}, &old_gpu).device.is_cpu());
}

TEST(Placement, Float16UsesTheGradScaler) {
  const PlacementOptions float16{.autocast_dtype = AutocastType::kFloat16};
  EXPECT_EQ(place(float16).autocast_dtype, std::nullopt) << "float16 is slow on a CPU, so auto does not use autocast";
  const auto old_gpu = gpus(&two_devices, &volta);
  EXPECT_EQ(place(float16, &old_gpu).autocast_dtype, torch::kFloat16);
  const auto asked = place({.autocast = true, .autocast_dtype = AutocastType::kFloat16});
  EXPECT_EQ(asked.autocast_dtype, torch::kFloat16);
  EXPECT_EQ(asked.input_dtype, torch::kFloat32);
  EXPECT_EQ(to_string(asked), "cpu, 3 threads, float32 with float16 autocast and GradScaler, channels_last");
}

TEST(Placement, ExplicitValuesAreUsed) {
  const auto float64 = place({.dtype = FloatType::kFloat64, .num_threads = 7});
  EXPECT_EQ(float64.dtype, torch::kFloat64);
  EXPECT_EQ(float64.autocast_dtype, std::nullopt);
  EXPECT_EQ(float64.memory_format, torch::MemoryFormat::Contiguous);
  EXPECT_EQ(float64.num_threads, 7);
  const auto mixed = place({.autocast = true, .channels_last = false});
  EXPECT_EQ(mixed.autocast_dtype, torch::kBFloat16);
  EXPECT_EQ(mixed.memory_format, torch::MemoryFormat::Contiguous);
  EXPECT_EQ(to_string(mixed), "cpu, 3 threads, float32 with bfloat16 autocast");
}

TEST(Placement, WinogradsAlgorithmIsForFloat32AndBFloat16OnACpu) {
  const auto convolution = [](const PlacementOptions& options, const CudaModule* cuda = nullptr) {
    return place(options, cuda).convolution;
  };
  const auto direct = ConvolutionChoice::kDirect;
  const auto winograd4 = ConvolutionChoice::kWinograd4;
  const auto two_gpus = gpus(&two_devices, &volta);
  EXPECT_EQ(convolution({.autocast = false}), winograd4);
  EXPECT_EQ(convolution({.autocast = false, .convolution = direct}), direct);
  EXPECT_EQ(convolution({.autocast = false, .convolution = winograd4}), winograd4);
  EXPECT_EQ(convolution({.autocast = true}), cpu_has_amx() ? direct : winograd4);
  EXPECT_EQ(convolution({.autocast = true, .convolution = ConvolutionChoice::kWinograd2}), ConvolutionChoice::kWinograd2);
  EXPECT_EQ(convolution({.autocast = true, .autocast_dtype = AutocastType::kFloat16, .convolution = winograd4}), direct);
  EXPECT_EQ(convolution({.dtype = FloatType::kFloat64, .autocast = false, .channels_last = true, .convolution = winograd4}), direct);
  EXPECT_EQ(convolution({.autocast = false, .channels_last = false, .convolution = winograd4}), direct);
  EXPECT_EQ(convolution({.autocast = false, .convolution = winograd4, .deterministic = true}), direct);
  EXPECT_EQ(convolution({.autocast = false, .convolution = winograd4}, &two_gpus), direct);
}

TEST(Placement, OperatorsAreFusedOnACpuAndOnAGpuIfThatIsWanted) {
  const auto two_gpus = gpus(&two_devices, &volta);
  EXPECT_TRUE(place({}).fuse);
  EXPECT_FALSE(place({.fuse = FuseChoice::kOff}).fuse);
  EXPECT_FALSE(place({}, &two_gpus).fuse);
  EXPECT_TRUE(place({.fuse = FuseChoice::kOn}, &two_gpus).fuse);
}

TEST(Placement, AMissingGpu) {
  try {
    place({.device = DeviceChoice::kCuda});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "runtime.device: cuda is set, but this process has no access to a GPU; request one (Slurm's --gpus-per-node, a "
                 "container's --gpus or --nv), or set cpu or auto");
  }
}

TEST(Placement, IsApplied) {
  PlacementOptions options{.deterministic = true};
  auto placement = place(options);
  placement.num_threads = 2;
  apply_placement(placement, options);
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  // These are PyTorch's defaults.
  EXPECT_TRUE(at::globalContext().allowTF32CuDNN());
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  for (const bool allow : {true, false}) {
    options.allow_tf32 = allow;
    apply_placement(placement, options);
    EXPECT_EQ(at::globalContext().allowTF32CuDNN(), allow);
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), allow);
  }
  EXPECT_GT(memory_in_use(placement), 10'000'000U);
}

}  // namespace
}  // namespace trainer::device
