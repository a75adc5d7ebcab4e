#include "device/cuda/compile.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace {

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

}  // namespace

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
