#include "device/placement.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "base/text.h"
#include "device/libtorch_settings.h"
#include "trainer/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace trainer::device {
namespace {

bool has_fast_bfloat16(const Placement& placement) {
  constexpr int kFirstWithBfloat16 = 8;
  return placement.cuda != nullptr ? placement.cuda->compute_capability_major(placement.device.index()) >= kFirstWithBfloat16
                                   : cpu_has_fast_bfloat16();
}

int gpu_of(int local_rank, int num_gpus) {
  if (num_gpus == 1) return 0;
  if (local_rank < num_gpus) return local_rank;
  throw UsageError(
      fmt::format("local rank {} has no GPU, because the number of visible GPUs on this host is {}; start one process per GPU "
                  "(--nproc-per-node {}), or set runtime.device: cpu",
                  local_rank, num_gpus, num_gpus));
}

const char* autocast_text(const Placement& placement) {
  if (!placement.autocast_dtype) return "";
  return *placement.autocast_dtype == torch::kFloat16 ? " with float16 autocast and GradScaler" : " with bfloat16 autocast";
}

ConvolutionChoice choose_convolution(const PlacementOptions& options, const Placement& placement) {
  const bool is_bfloat16 = placement.autocast_dtype == torch::kBFloat16;
  const bool is_possible = placement.device.is_cpu() && placement.dtype == torch::kFloat32 && (is_bfloat16 || !placement.autocast_dtype) &&
                           placement.memory_format == torch::MemoryFormat::ChannelsLast && !options.deterministic;
  if (!is_possible) return ConvolutionChoice::kDirect;
  if (options.convolution != ConvolutionChoice::kAuto) return options.convolution;
  // Networks trained with kWinograd4 are as accurate as with kDirect, although its larger tiles increase rounding errors (docs/results.md).
  // With AMX, direct convolutions in bfloat16 are faster than any other algorithm.
  return is_bfloat16 && cpu_has_amx() ? ConvolutionChoice::kDirect : ConvolutionChoice::kWinograd4;
}

}  // namespace

#if defined(__x86_64__)
bool cpu_has_fast_bfloat16() { return __builtin_cpu_supports("avx512bf16"); }
bool cpu_has_amx() {
  // Not __builtin_cpu_supports("amx-bf16"), which clang 14 does not know.
  constexpr unsigned kLeaf = 7, kAmxBf16 = 1U << 22;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(kLeaf, 0, &a, &b, &c, &d) != 0 && (d & kAmxBf16) != 0;
}
#else
bool cpu_has_fast_bfloat16() { return false; }
bool cpu_has_amx() { return false; }
#endif

Placement choose_placement(const PlacementOptions& options, const HostShare& share, const CudaAccess& cuda) {
  Placement placement;
  if (options.device == DeviceChoice::kCuda && cuda.module == nullptr) {
    if (!cuda.refusal.empty()) throw UsageError("runtime.device: cuda is set, but CUDA cannot be used: " + cuda.refusal);
    throw UsageError(
        "runtime.device: cuda is set, but this process has no access to a GPU; request one (Slurm's --gpus-per-node, a "
        "container's --gpus or --nv), or set cpu or auto");
  }
  if (cuda.module != nullptr && options.device != DeviceChoice::kCpu) {
    const int index = gpu_of(share.local_rank, cuda.module->device_count());
    placement.device = torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(index));
    placement.cuda = cuda.module;
    cuda.module->set_device(index);
    if (const auto refusal = cuda.module->device_refusal(index); !refusal.empty()) {
      throw UsageError(fmt::format("{} cannot be used: {}; set runtime.device: cpu, or set CUDA_VISIBLE_DEVICES to another GPU",
                                   placement.device.str(), refusal));
    }
    placement.cuda_graph = options.cuda_graph;
  } else if (options.cuda_graph == CudaGraphChoice::kOn) {
    throw UsageError("runtime.cuda_graph: on needs a GPU, but this process uses the CPU; set auto or off");
  }
  const bool float64 = options.dtype == FloatType::kFloat64;
  placement.dtype = float64 ? torch::kFloat64 : torch::kFloat32;
  const bool float16 = options.autocast_dtype == AutocastType::kFloat16;
  const bool is_fast = float16 ? placement.cuda != nullptr : has_fast_bfloat16(placement);
  if (options.autocast.value_or(!float64 && is_fast)) placement.autocast_dtype = float16 ? torch::kFloat16 : torch::kBFloat16;
  // The loader cannot write float16; autocast converts the images with one small kernel.
  placement.input_dtype = float16 ? placement.dtype : placement.autocast_dtype.value_or(placement.dtype);
  if (options.channels_last.value_or(!float64)) placement.memory_format = torch::MemoryFormat::ChannelsLast;
  placement.network_chooses_format = !options.channels_last;
  placement.convolution = choose_convolution(options, placement);
  placement.fuse = options.fuse == FuseChoice::kOn || (options.fuse == FuseChoice::kAuto && placement.device.is_cpu());
  placement.num_threads = static_cast<int>(options.num_threads.value_or(share.num_threads));
  placement.pin_memory = options.pin_memory.value_or(placement.cuda != nullptr) && placement.cuda != nullptr;
  return placement;
}

std::string to_string(const Placement& placement) {
  const char* precision = placement.dtype == torch::kFloat64 ? "float64" : "float32";
  return fmt::format("{}, {}, {}{}{}", placement.device.str(), counted(placement.num_threads, "thread"), precision,
                     autocast_text(placement), placement.memory_format == torch::MemoryFormat::ChannelsLast ? ", channels_last" : "");
}

void configure_cpu_allocator() {
  constexpr int kNever = std::numeric_limits<int>::max();
  mallopt(M_MMAP_THRESHOLD, kNever);
  mallopt(M_TRIM_THRESHOLD, kNever);
  // The heap grows by several huge pages at once, because only memory that belongs completely to the heap can be a huge page.
  mallopt(M_TOP_PAD, 8 * 1024 * 1024);
  allocate_tensors_by_malloc();
}

void apply_placement(const Placement& placement, const PlacementOptions& options) {
  at::set_num_threads(placement.num_threads);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  // With deterministic algorithms, LibTorch would fill all new tensors, in case a program reads them before writing them; on a GPU this
  // nearly doubles the number of kernels.
  context.setDeterministicFillUninitializedMemory(false);
  context.setDeterministicCuDNN(options.deterministic);
  context.setBenchmarkCuDNN(options.cudnn_benchmark && !options.deterministic);
  if (const auto& allow = options.allow_tf32) {
    context.setAllowTF32CuBLAS(*allow);
    context.setAllowTF32CuDNN(*allow);
  }
}

SavedSettings::SavedSettings(const PlacementOptions& options) : num_threads_(at::get_num_threads()) {
  const auto& context = at::globalContext();
  is_deterministic_ = context.deterministicAlgorithms();
  only_warns_ = context.deterministicAlgorithmsWarnOnly();
  fills_memory_ = context.deterministicFillUninitializedMemory();
  is_cudnn_deterministic_ = context.deterministicCuDNN();
  searches_ = context.benchmarkCuDNN();
  // Otherwise not read, because LibTorch throws if the process uses its newer functions for the precision.
  if (options.allow_tf32) tf32_ = {context.allowTF32CuBLAS(), context.allowTF32CuDNN()};
}

SavedSettings::~SavedSettings() {
  at::set_num_threads(num_threads_);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(is_deterministic_, only_warns_);
  context.setDeterministicFillUninitializedMemory(fills_memory_);
  context.setDeterministicCuDNN(is_cudnn_deterministic_);
  context.setBenchmarkCuDNN(searches_);
  if (!tf32_) return;
  context.setAllowTF32CuBLAS(tf32_->first);
  context.setAllowTF32CuDNN(tf32_->second);
}

uint64_t memory_in_use(const Placement& placement) {
  if (placement.cuda != nullptr) return placement.cuda->peak_memory(placement.device.index());
  std::ifstream statm("/proc/self/statm");
  uint64_t pages_mapped = 0;
  uint64_t pages_resident = 0;
  statm >> pages_mapped >> pages_resident;
  return pages_resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace trainer::device
