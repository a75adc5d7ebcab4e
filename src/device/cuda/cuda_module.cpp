// The CUDA module, a shared library that device/cuda_module.cpp opens. In src/, only the code in this folder includes CUDA headers.

#include "device/cuda_module.h"

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/csrc/cuda/nccl.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

// LibTorch was built with this macro; without it the header is empty.
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace {

int device_count() { return c10::cuda::device_count(); }

std::string refusal() {
  int count = 0;
  const auto error = cudaGetDeviceCount(&count);
  // Clears the error, which later calls of this thread would otherwise return.
  cudaGetLastError();
  return error == cudaSuccess || error == cudaErrorNoDevice ? "" : cudaGetErrorString(error);
}

int compute_capability_major(int device) { return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device))->major; }

std::string device_refusal(int device) {
  try {
    const c10::Device place(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
    // This is the first kernel; it fails on a device for which LibTorch has no code.
    const auto two = at::ones({2}, place).sum().item<float>();
    if (two == 2) return "";
    return fmt::format("a test computed 1 + 1 = {}", two);
  } catch (const std::exception& error) {
    const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
    return fmt::format("{} (compute capability {}.{}): {}", properties->name, properties->major, properties->minor,
                       text.substr(0, text.find('\n')));
  }
}

uint64_t peak_memory(int device) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<uint64_t>(stats.allocated_bytes[kAll].peak);
}

std::string pci_bus_id(int device) {
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
  return fmt::format("{:04x}:{:02x}:{:02x}.0", properties->pciDomainID, properties->pciBusID, properties->pciDeviceID);
}

void set_device(int device) { c10::cuda::set_device(static_cast<c10::DeviceIndex>(device)); }

class Graph : public at::cuda::CUDAGraph {
 public:
  // Registers the generators that the recording may use. LibTorch 2.14 and newer register them on their first use.
  template <class CudaGraph = at::cuda::CUDAGraph>
  void use(const std::vector<at::Generator>& generators) {
    if constexpr (requires(CudaGraph & graph, const at::Generator& generator) { graph.register_generator_state(generator); }) {
      for (const auto& generator : generators) CudaGraph::register_generator_state(generator);
    }
  }

  // Ends a recording that failed. If capture_begin() or capture_end() fails, some versions of LibTorch leave their allocators and
  // generators as during a capture, with references to this object; in newer ones, reset() knows what it has to end.
  template <class CudaGraph = Graph>
  void abandon_capture(std::vector<at::Generator> generators) {
    try {
      if (!capture_ended_) capture_end();
    } catch (const std::exception&) {
      // The capture is invalid, did not begin or has already ended; the failure of the recording has been thrown.
    }
    // Otherwise the next operation would report the error of a call whose result LibTorch has not read.
    (void)cudaGetLastError();
    if (capture_ended_) return;
    if constexpr (requires(CudaGraph & graph) { graph.capturing_to_pool_; }) {
      reset();
      return;
    }
    generators.push_back(at::cuda::detail::getDefaultCUDAGenerator(capture_dev_));
    for (auto& generator : generators) generator.graphsafe_set_state(at::cuda::detail::createCUDAGenerator(capture_dev_));
    c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_);
    c10::cuda::CUDACachingAllocator::releasePool(capture_dev_, mempool_id_);
    auto* of_host = at::getHostAllocator(at::kCUDA);
    of_host->end_allocate_to_pool(mempool_id_);
    of_host->release_pool(mempool_id_);
  }
};

std::function<void()> record_graph(const std::vector<at::Generator>& generators, const std::function<void()>& work) {
  const auto graph = std::make_shared<Graph>();
  graph->use(generators);
  // The graph allocates memory of its own and cannot use the memory that is cached now, so the cache is emptied.
  c10::cuda::CUDACachingAllocator::emptyCache();
  try {
    // Thread-local, because in the global mode, a call that is not allowed during a capture, such as waiting for a copy, would also fail in
    // other threads and invalidate the graph.
    graph->capture_begin({}, cudaStreamCaptureModeThreadLocal);
    work();
    graph->capture_end();
  } catch (...) {
    graph->abandon_capture(generators);
    throw;
  }
  return [graph] { graph->replay(); };
}

// The functions of NVRTC, whose header need not be installed. A program is an opaque pointer, and a result of 0 is success.
struct Nvrtc {
  using Program = void*;
  int (*create)(Program*, const char* source, const char* name, int num_headers, const char* const* headers, const char* const* names);
  int (*compile)(Program, int num_options, const char* const* options);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*code_size)(Program, size_t*);
  int (*code)(Program, char*);
  int (*destroy)(Program*);
  const char* (*error_text)(int);

  Nvrtc() {
    // LibTorch's library needs NVRTC and knows where it is.
    void* library = dlopen("libcaffe2_nvrtc.so", RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK(library != nullptr, "NVIDIA's compiler NVRTC cannot be opened: ", dlerror());
    find(library, create, "nvrtcCreateProgram");
    find(library, compile, "nvrtcCompileProgram");
    find(library, log_size, "nvrtcGetProgramLogSize");
    find(library, log, "nvrtcGetProgramLog");
    find(library, code_size, "nvrtcGetCUBINSize");
    find(library, code, "nvrtcGetCUBIN");
    find(library, destroy, "nvrtcDestroyProgram");
    find(library, error_text, "nvrtcGetErrorString");
  }

  void check(int result, const char* function) const { TORCH_CHECK(result == 0, function, " failed: ", error_text(result)); }

 private:
  template <typename Function>
  static void find(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    TORCH_CHECK(function != nullptr, "NVIDIA's compiler NVRTC has no function ", name);
  }
};

// Returns the machine code for a GPU of this compute capability.
std::string compile(const std::string& source, int major, int minor) {
  static const Nvrtc nvrtc;
  Nvrtc::Program program = nullptr;
  nvrtc.check(nvrtc.create(&program, source.c_str(), "trainer.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  const auto destroyed = std::unique_ptr<Nvrtc::Program, void (*)(Nvrtc::Program*)>(&program, [](auto* held) { nvrtc.destroy(held); });
  const auto architecture = fmt::format("--gpu-architecture=sm_{}{}", major, minor);
  const std::array options = {architecture.c_str(), "--std=c++20"};
  if (const int result = nvrtc.compile(program, static_cast<int>(options.size()), options.data()); result != 0) {
    size_t size = 0;
    nvrtc.log_size(program, &size);
    std::string log(size, 0);
    nvrtc.log(program, log.data());
    TORCH_CHECK(false, nvrtc.error_text(result), " with ", architecture, ": ", log.substr(0, log.find('\n')));
  }
  size_t size = 0;
  nvrtc.check(nvrtc.code_size(program, &size), "nvrtcGetCUBINSize");
  std::string code(size, 0);
  nvrtc.check(nvrtc.code(program, code.data()), "nvrtcGetCUBIN");
  return code;
}

std::vector<const void*> compile_kernels(const std::string& source, const std::vector<std::string>& names, int device) {
  // Neither the map nor the libraries are freed: kernels may be launched until the process ends.
  static std::mutex mutex;
  static auto& libraries = *new std::map<std::pair<std::string, int>, cudaLibrary_t>;
  const std::lock_guard lock(mutex);
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
  auto& library = libraries[{source, properties->major * 10 + properties->minor}];
  if (library == nullptr) {
    const auto code = compile(source, properties->major, properties->minor);
    C10_CUDA_CHECK(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  std::vector<const void*> kernels;
  for (const auto& name : names) {
    cudaKernel_t kernel = nullptr;
    C10_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library, name.c_str()));
    kernels.push_back(kernel);
  }
  return kernels;
}

void launch(const void* kernel, int device, const trainer::device::LaunchShape& shape, const void* argument) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  void* arguments[] = {const_cast<void*>(argument)};
  C10_CUDA_CHECK(cudaLaunchKernel(kernel, dim3(shape.blocks[0], shape.blocks[1]), dim3(shape.threads[0], shape.threads[1]), arguments,
                                  /*sharedMem=*/0, c10::cuda::getCurrentCUDAStream()));
}

class NcclBackend : public c10d::ProcessGroupNCCL {
 public:
  using ProcessGroupNCCL::abortComms;
  using ProcessGroupNCCL::ProcessGroupNCCL;
};

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::Device device,
                                                    std::chrono::milliseconds timeout) {
  c10::cuda::set_device(device.index());
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<NcclBackend>(std::move(store), rank, size, std::move(options));
}

void abort_nccl(const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends, const std::string& reason) {
  // Together, because the abort of one communicator waits for all kernels on the device, also for those of another communicator, which only
  // its own abort ends.
  const torch::cuda::nccl::AutoNcclGroup group;
  for (const auto& backend : backends) static_cast<NcclBackend&>(*backend).abortComms(reason);
}

trainer::device::GpuReport gpu_report() {
  trainer::device::GpuReport report;
  cudaDriverGetVersion(&report.driver_version);
  cudaRuntimeGetVersion(&report.runtime_version);
  const auto nccl = torch::cuda::nccl::version();
  report.nccl_version = fmt::format("{}.{}.{}", nccl >> 32, nccl >> 16 & 0xffff, nccl & 0xffff);
  const int count = device_count();
  for (int device = 0; device < count; ++device) {
    auto& gpu = report.gpus.emplace_back();
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) gpu.name = properties.name;
    gpu.capability_major = properties.major;
    gpu.capability_minor = properties.minor;
    gpu.pci_bus_id = pci_bus_id(device);
    gpu.refusal = device_refusal(device);
    size_t free = 0;
    size_t total = 0;
    if (gpu.refusal.empty() && cudaSetDevice(device) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess) {
      gpu.free_memory = free;
      gpu.total_memory = total;
    }
  }
  return report;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const trainer::device::CudaModule* trainer_cuda_module() {
  static constexpr trainer::device::CudaModule kModule{
      &device_count,    &refusal, &compute_capability_major, &device_refusal, &peak_memory, &pci_bus_id, &set_device, &record_graph,
      &compile_kernels, &launch,  &make_nccl_backend,        &abort_nccl,     &gpu_report};
  return &kModule;
}
