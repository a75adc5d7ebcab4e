#include "device/libtorch_settings.h"

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "trainer/error.h"

namespace trainer::device {
namespace {

struct Default {
  const char* name;
  const char* value;
};

constexpr Default kGpuDefaults[] = {
    // cuBLAS is deterministic only with a fixed workspace. On GPUs older than Hopper, this workspace is about 24 MiB larger than
    // LibTorch's default.
    {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"},
    // The communicators of gradients and of batch statistics are used at the same time. Their kernels could wait for each other forever
    // unless every GPU starts them in the order of the calls, which is the same on all ranks. Needs NCCL 2.26 or later.
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"},
    // After the failure of another rank, LibTorch's own threads would abort this process before the failure detector has found that rank,
    // and the launcher would report this rank instead; in an application, before a collective has thrown PeerError.
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
    {"TORCH_NCCL_ENABLE_MONITORING", "0"},
    {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
    {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},
    // After a failure, LibTorch would keep a group from being destroyed for four times as long, 60 s by default.
    {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0"},
};

// /dev/dxg is the GPU in Windows Subsystem for Linux.
bool has_gpu_device() {
  std::error_code unknown;
  return std::filesystem::exists("/dev/nvidiactl", unknown) || std::filesystem::exists("/dev/dxg", unknown);
}

}  // namespace

void set_gpu_defaults() {
  for (const auto& [name, value] : kGpuDefaults) setenv(name, value, /*overwrite=*/0);
}

void set_library_defaults() {
  set_gpu_defaults();
  // LibTorch would print a stack trace for a lost connection, which this program reports in one sentence.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  // The profiler of a LibTorch with CUDA prints an error if there is no GPU. With a GPU its errors are useful, because they explain what is
  // missing in the trace.
  if (!has_gpu_device()) setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
}

namespace {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

constexpr const char* kBackend = "backend";

// Keys that LibTorch's CUDA library adds to the parser when it is loaded (c10/cuda/CUDAAllocatorConfig.h). Only that library checks their
// values.
class CudaKeys {
 public:
  CudaKeys() {
    for (const char* key : {kBackend, "release_lock_on_cudamalloc", "pinned_use_cuda_host_register", "graph_capture_record_stream_reuse",
                            "pinned_reserve_segment_size_mb", "pinned_num_register_threads", "per_process_memory_fraction"}) {
      if (Config::getMutableKeys().insert(key).second) added_.emplace_back(key);
    }
  }
  ~CudaKeys() {
    for (const auto& key : added_) Config::getMutableKeys().erase(key);
  }
  CudaKeys(const CudaKeys&) = delete;
  CudaKeys& operator=(const CudaKeys&) = delete;

 private:
  std::vector<std::string> added_;
};

// "a:1,b:[2,3]" -> "a:1", "b:[2,3]".
std::vector<std::string> split_items(std::string_view settings) {
  std::vector<std::string> items(1);
  int depth = 0;
  for (const char character : settings) {
    depth += character == '[' ? 1 : character == ']' ? -1 : 0;
    if (character == ',' && depth == 0) {
      items.emplace_back();
    } else if (character != ' ') {
      items.back() += character;
    }
  }
  return items;
}

std::string refusal_of_item(const std::string& item) {
  const auto colon = item.find(':');
  const auto key = item.substr(0, colon);
  const auto& known = Config::getKeys();
  if (!known.contains(key)) {
    std::vector<std::string> names(known.begin(), known.end());
    std::ranges::sort(names);
    const auto near = nearest_name(key, names);
    return near.empty() ? fmt::format("the allocator has no key \"{}\"; its keys are {}", key, fmt::join(names, ", "))
                        : fmt::format("the allocator has no key \"{}\"; did you mean \"{}\"?", key, near);
  }
  if (colon == std::string::npos || colon + 1 == item.size()) return fmt::format("\"{}\" has no value; write {}:VALUE", item, key);
  if (key == kBackend) {
    return "LibTorch chooses the allocator's backend when it is loaded; set the environment variable PYTORCH_CUDA_ALLOC_CONF instead";
  }
  try {
    Config::instance().parseArgs(item);
  } catch (const c10::Error& error) {
    return fmt::format("\"{}\": {}", item, error.what_without_backtrace());
  } catch (const std::exception&) {
    return fmt::format("\"{}\": the value must be a number", item);
  }
  return "";
}

}  // namespace

std::string refusal_of_allocator(const std::string& settings) {
  if (settings.empty()) return "";
  const CudaKeys keys;
  for (const auto& item : split_items(settings)) {
    if (auto refusal = refusal_of_item(item); !refusal.empty()) return refusal;
  }
  return "";
}

void apply_allocator(const std::string& settings) {
  if (settings.empty()) return;
  try {
    c10::CachingAllocator::setAllocatorSettings(settings);
  } catch (const c10::Error& error) {
    throw UsageError(fmt::format("runtime.cuda_allocator: \"{}\": {}", settings, error.what_without_backtrace()));
  } catch (const std::exception&) {
    throw UsageError(fmt::format("runtime.cuda_allocator: \"{}\": one of the values must be a number; correct it", settings));
  }
}

namespace {

constexpr size_t kTensorAlignment = 64;

// The address that malloc returned is stored before the aligned memory. malloc aligns to at least 16 bytes, so there is room for the
// address.
void*& malloc_address(void* data) { return static_cast<void**>(data)[-1]; }

void free_tensor(void* data) {
  if (data == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(data);
  std::free(malloc_address(data));
}

// The end of the heap's last whole page.
uintptr_t heap_end() {
  static const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return reinterpret_cast<uintptr_t>(sbrk(0)) / page_size * page_size;
}

class MallocAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    if (num_bytes == 0) return {nullptr, nullptr, &free_tensor, c10::kCPU};
    char* const address = num_bytes < SIZE_MAX - kTensorAlignment ? static_cast<char*>(std::malloc(num_bytes + kTensorAlignment)) : nullptr;
    // This call throws LibTorch's error.
    if (address == nullptr) return c10::GetDefaultCPUAllocator()->allocate(num_bytes);
    ask_for_huge_pages(reinterpret_cast<uintptr_t>(address) + num_bytes);
    void* const data = address + kTensorAlignment - reinterpret_cast<uintptr_t>(address) % kTensorAlignment;
    malloc_address(data) = address;
    c10::profiledCPUMemoryReporter().New(data, num_bytes);
    return {data, data, &free_tensor, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_tensor; }
  void copy_data(void* to, const void* from, size_t num_bytes) const override { default_copy_data(to, from, num_bytes); }

 private:
  // Requests huge pages for the new part of the heap if a new block, which ends at `block_end`, is in it.
  void ask_for_huge_pages(uintptr_t block_end) {
    auto begin = asked_until_.load(std::memory_order_relaxed);
    if (block_end <= begin) return;
    const auto end = heap_end();
    // Blocks of other threads may be outside the heap.
    if (block_end > end || !asked_until_.compare_exchange_strong(begin, end)) return;
    // Failure is ignored, because huge pages only improve speed.
    static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
  }

  std::atomic<uintptr_t> asked_until_ = heap_end();
};

}  // namespace

NoSearchForSmallBatch::NoSearchForSmallBatch(bool is_small) : searches_otherwise_(at::globalContext().benchmarkCuDNN()) {
  at::globalContext().setBenchmarkCuDNN(searches_otherwise_ && !is_small);
}

NoSearchForSmallBatch::~NoSearchForSmallBatch() { at::globalContext().setBenchmarkCuDNN(searches_otherwise_); }

void allocate_tensors_by_malloc() {
  static MallocAllocator allocator;
  // The default allocator has priority 0 and is replaced by another one with the same priority.
  c10::SetCPUAllocator(&allocator, /*priority=*/0);
}

}  // namespace trainer::device
