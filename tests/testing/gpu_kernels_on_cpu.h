#pragma once
// Runs the kernels of nn/fused_norm/gpu_kernels.h on the CPU, in tensors of the CPU or of computing_device.h: a CUDA module whose compiler
// is this program's. The threads of a block run one after another, each until it waits for the others.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda_module.h"
#include "nn/fused_norm/gpu_arguments.h"
#include "trainer/torch.h"

namespace trainer::testing::on_cpu {

struct Index {
  unsigned x = 0, y = 0;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;

// Whether blocks, and threads between two barriers, run in reverse order. The results must not depend on it.
inline bool is_reversed = false;

// The block that runs.
struct Block {
  std::vector<ucontext_t> threads;
  std::vector<char> stacks;
  ucontext_t scheduler = {};
  ucontext_t* current = nullptr;
  size_t num_waiting = 0;  // threads that wait for the others
  const std::function<void()>* work = nullptr;
};
inline Block block;

inline void __syncthreads() {
  ++block.num_waiting;
  swapcontext(block.current, &block.scheduler);
}

inline unsigned atomicAdd(unsigned* address, unsigned value) { return std::exchange(*address, *address + value); }
inline void __threadfence() {}

inline void run_block(unsigned num_threads, const std::function<void()>& work) {
  constexpr size_t kStack = 64 * 1024;
  block.threads.resize(num_threads);
  block.stacks.resize(num_threads * kStack);
  block.work = &work;
  for (unsigned i = 0; i < num_threads; ++i) {
    auto& thread = block.threads[i];
    getcontext(&thread);
    thread.uc_stack.ss_sp = block.stacks.data() + i * kStack;
    thread.uc_stack.ss_size = kStack;
    thread.uc_link = &block.scheduler;
    makecontext(
        &thread, +[] { (*block.work)(); }, 0);
  }
  do {
    block.num_waiting = 0;
    for (unsigned i = 0; i < num_threads; ++i) {
      const unsigned number = is_reversed ? num_threads - 1 - i : i;
      threadIdx = {number % blockDim.x, number / blockDim.x};
      block.current = &block.threads[number];
      swapcontext(&block.scheduler, block.current);
    }
    TORCH_CHECK(block.num_waiting == 0 || block.num_waiting == num_threads, "some threads of a block do not reach a barrier");
  } while (block.num_waiting > 0);
}

}  // namespace trainer::testing::on_cpu

#define TRAINER_KERNEL(name) inline void name
#define TRAINER_UNROLL
#define TRAINER_ACTIVATION(used) used
#define __device__
#define __shared__ static
namespace trainer::nn::fused_norm {
using testing::on_cpu::__syncthreads, testing::on_cpu::__threadfence, testing::on_cpu::atomicAdd;
using testing::on_cpu::threadIdx, testing::on_cpu::blockIdx, testing::on_cpu::blockDim, testing::on_cpu::gridDim;
#define TRAINER_VALUE float
namespace as_float {
#include "nn/fused_norm/gpu_kernels.h"
}
#undef TRAINER_VALUE
#define TRAINER_VALUE BFloat16
namespace as_bfloat16 {
#include "nn/fused_norm/gpu_kernels.h"
}
#undef TRAINER_VALUE
#define TRAINER_VALUE Float16
namespace as_float16 {
#include "nn/fused_norm/gpu_kernels.h"
}
#undef TRAINER_VALUE
}  // namespace trainer::nn::fused_norm
#undef TRAINER_KERNEL
#undef TRAINER_UNROLL
#undef TRAINER_ACTIVATION
#undef __device__
#undef __shared__

namespace trainer::testing::on_cpu {

struct Kernel {
  const char* type;
  const char* name;
  void (*run)(const void* argument);
  size_t argument_size;
};

template <class Arguments, void (*kKernel)(Arguments)>
constexpr Kernel kernel_of(const char* type, const char* name) {
  return {type, name, [](const void* argument) { kKernel(*static_cast<const Arguments*>(argument)); }, sizeof(Arguments)};
}

namespace floats = nn::fused_norm::as_float::trainer::nn::fused_norm;
namespace bfloat16s = nn::fused_norm::as_bfloat16::trainer::nn::fused_norm;
namespace float16s = nn::fused_norm::as_float16::trainer::nn::fused_norm;
using namespace nn::fused_norm;

#define TRAINER_KERNELS_OF(type, kernels)                                                                                                  \
  kernel_of<MomentsArguments, kernels::moments>(type, "moments"), kernel_of<StatisticsArguments, kernels::statistics>(type, "statistics"), \
      kernel_of<NormaliseArguments, kernels::normalise>(type, "normalise"),                                                                \
      kernel_of<GradientSumsArguments, kernels::gradient_sums>(type, "gradient_sums"),                                                     \
      kernel_of<GradientsArguments, kernels::gradients>(type, "gradients"),                                                                \
      kernel_of<InputGradientArguments, kernels::input_gradient>(type, "input_gradient")
inline constexpr Kernel kKernels[] = {TRAINER_KERNELS_OF("float", floats), TRAINER_KERNELS_OF("BFloat16", bfloat16s),
                                      TRAINER_KERNELS_OF("Float16", float16s)};
#undef TRAINER_KERNELS_OF

// CudaModule::compile
inline std::vector<const void*> compile(const std::string& source, const std::vector<std::string>& names, int /*device*/) {
  std::vector<const void*> kernels;
  for (const auto& name : names) {
    const auto* found = std::ranges::find_if(kKernels, [&](const Kernel& kernel) {
      return name == kernel.name && source.starts_with(std::string("#define TRAINER_VALUE ") + kernel.type + "\n");
    });
    TORCH_CHECK(found != std::end(kKernels), "there is no kernel ", name);
    kernels.push_back(found);
  }
  return kernels;
}

inline void run(const Kernel& kernel, const device::LaunchShape& shape, const void* argument) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto num_threads = shape.threads[0] * shape.threads[1];
  TORCH_CHECK(num_threads > 0 && num_threads <= nn::fused_norm::kSumThreads, kernel.name, ": ", num_threads, " threads");
  TORCH_CHECK(shape.blocks[0] > 0 && shape.blocks[1] > 0 && shape.blocks[1] <= 65535, kernel.name, ": blocks ", shape.blocks[0], ", ",
              shape.blocks[1]);
  gridDim = {shape.blocks[0], shape.blocks[1]};
  blockDim = {shape.threads[0], shape.threads[1]};
  const unsigned num_blocks = gridDim.x * gridDim.y;
  for (unsigned i = 0; i < num_blocks; ++i) {
    const unsigned number = is_reversed ? num_blocks - 1 - i : i;
    blockIdx = {number % gridDim.x, number / gridDim.x};
    run_block(blockDim.x * blockDim.y, [&] { kernel.run(argument); });
  }
}

// CudaModule::launch
inline void launch(const void* kernel, int /*device*/, const device::LaunchShape& shape, const void* argument) {
  run(*static_cast<const Kernel*>(kernel), shape, argument);
}

}  // namespace trainer::testing::on_cpu
