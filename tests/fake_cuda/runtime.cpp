// The CUDA runtime: devices, memory, streams, events and the launch of kernels.

#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "fake_cuda.h"

using Lock = std::lock_guard<std::recursive_mutex>;

// The objects to which CUDA's handles point.
struct CUgraph_st {
  std::vector<std::function<bool()>> work;
  int64_t num_launches = 0;
  bool is_valid = true;
};

struct CUgraphExec_st {
  CUgraph_st graph;
};

struct CUstream_st {
  CUgraph_st* capture = nullptr;  // if not null, work is recorded there instead of being done
  std::deque<std::function<bool()>> work;
  uint64_t num_added = 0;
  uint64_t num_done = 0;
  int64_t waited_launch = -1;  // the host has waited for all work before this kernel launch
};

struct CUevent_st {
  unsigned flags = 0;
  CUstream_st* stream = nullptr;  // null: not recorded
  bool is_captured = false;
  uint64_t position = 0;  // the number of the stream's operations that have to be done before the event
  int64_t launch = 0;     // number of kernel launches before the event
  std::chrono::steady_clock::time_point time = {};
};

namespace fake_cuda {
namespace {

const char* variable(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value != nullptr ? value : otherwise;
}

struct Failure {
  std::string function;
  int64_t at = 0;  // the number of the call; 0: each call while a graph is recorded
  int code = 0;
  bool is_sticky = false;
};

std::optional<Failure> wanted_failure() {
  const std::string text = variable("FAKE_CUDA_FAIL", "");
  if (text.empty() || rank() != variable("FAKE_CUDA_FAIL_RANK", rank().c_str())) return std::nullopt;
  Failure failure;
  char name[100] = {};
  char sticky[10] = {};
  if (sscanf(text.c_str(), "%99[^:]:%ld:%d:%9s", name, &failure.at, &failure.code, sticky) < 3) abort();
  failure.function = name;
  failure.is_sticky = sticky[0] != 0;
  return failure;
}

struct DeviceMemory {
  size_t size = 0;
  char* contents = nullptr;  // address at which the host may access the same memory
  int device = 0;
};

// The devices in CUDA_VISIBLE_DEVICES, if it is set.
int num_visible_gpus() {
  const int num_gpus = atoi(variable("FAKE_CUDA_GPUS", "1"));
  const std::string names = variable("CUDA_VISIBLE_DEVICES", "all");
  if (names == "all") return num_gpus;
  return names.empty() ? 0 : std::min(num_gpus, static_cast<int>(1 + std::ranges::count(names, ',')));
}

struct State {
  std::recursive_mutex mutex;
  const int num_gpus = num_visible_gpus();
  const size_t memory = strtoull(variable("FAKE_CUDA_MEMORY", "85899345920"), nullptr, 10);
  const bool skips_waits = *variable("FAKE_CUDA_SKIP_WAITS", "") != 0;
  const bool runs_early = *variable("FAKE_CUDA_EARLY", "") != 0;
  const std::optional<Failure> failure = wanted_failure();
  int lasting_error = 0;
  std::map<uintptr_t, DeviceMemory> device_memory;
  std::map<uintptr_t, size_t> pinned_memory;
  std::map<int, size_t> used_memory;           // by device
  std::map<uintptr_t, int64_t> small_writes;   // address of a small copy -> number of kernel launches before it
  std::map<int, CUstream_st> default_streams;  // by device
  std::vector<CUstream_st*> other_streams;
  std::map<const void*, std::string> kernel_names;
  std::map<std::string, int64_t> counts;
  std::map<std::string, int64_t> kernels;
  std::set<int> devices;                            // devices on which kernels were launched
  CUstream_st* capturing = nullptr;                 // at most one stream at a time
  std::optional<std::thread::id> capturing_thread;  // the thread that must not wait for the device during the capture; empty: no thread may
  int64_t num_launches = 0;
  std::set<cudaEvent_t> events;
};

State& state() {
  static auto* state = new State;
  return *state;
}

thread_local int current_device = 0;
// Whether this thread may make calls that are otherwise forbidden while a stream is captured, such as cudaMalloc
// (cudaStreamCaptureModeRelaxed).
thread_local bool is_relaxed = false;
thread_local int last_error = 0;
thread_local std::vector<std::tuple<dim3, dim3, size_t, cudaStream_t>> launch_configurations;

std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  free(text);
  return result;
}

// The region in `regions` that contains the address.
template <typename Value>
auto region_of(std::map<uintptr_t, Value>& regions, const void* address, const std::function<size_t(const Value&)>& size) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  auto region = regions.upper_bound(value);
  if (region == regions.begin()) return regions.end();
  --region;
  return value - region->first < size(region->second) ? region : regions.end();
}

auto device_region(const void* address) {
  return region_of<DeviceMemory>(state().device_memory, address, [](const auto& memory) { return memory.size; });
}

bool is_on_device(const void* address) { return device_region(address) != state().device_memory.end(); }

bool is_pinned(const void* address) {
  return region_of<size_t>(state().pinned_memory, address, [](size_t size) { return size; }) != state().pinned_memory.end();
}

// Returns the address at which the host may access the memory at a device address.
char* contents_at(const void* address) {
  const auto region = device_region(address);
  if (region == state().device_memory.end()) return static_cast<char*>(const_cast<void*>(address));
  return region->second.contents + (reinterpret_cast<uintptr_t>(address) - region->first);
}

CUstream_st& stream_of(cudaStream_t stream) {
  const Lock lock(state().mutex);
  const bool is_default = stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  return is_default ? state().default_streams[current_device] : *stream;
}

// Does the work of a stream up to a position. Returns false if that has to wait for another process.
bool try_complete(CUstream_st& stream, uint64_t position) {
  while (stream.num_done < position) {
    if (!stream.work.front()()) return false;
    stream.work.pop_front();
    ++stream.num_done;
  }
  return true;
}

// Makes the host wait for the stream's work up to `position`, at which `launch` kernels had been launched.
void complete(CUstream_st& stream, uint64_t position, int64_t launch) {
  while (true) {
    {
      const Lock lock(state().mutex);
      stream.waited_launch = std::max(stream.waited_launch, launch);
      if (try_complete(stream, position)) return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void complete(CUstream_st& stream) {
  std::unique_lock lock(state().mutex);
  const auto [position, launch] = std::pair(stream.num_added, state().num_launches);
  lock.unlock();
  complete(stream, position, launch);
}

void count_wait(const char* function) { count(std::string("host waits: ") + function); }

// Returns the error of a call that is not allowed during a capture, and makes the capture invalid; returns 0 if the call is allowed.
// `is_captured`: whether the call is about a captured event or stream, about which no thread may ask.
int forbid_in_capture(const char* function, bool is_captured = false) {
  const Lock lock(state().mutex);
  auto* stream = state().capturing;
  if (stream == nullptr) return 0;
  const bool is_other = state().capturing_thread && *state().capturing_thread != std::this_thread::get_id();
  if (!is_captured && (is_relaxed || is_other)) return 0;
  report(fmt::format("{} in a capture, from {}", function, callers()));
  stream->capture->is_valid = false;
  return last_error = cudaErrorStreamCaptureUnsupported;
}

constexpr size_t kSmall = 64;

// `num_launches`: the number of kernel launches when the copy was requested.
void note_write(const void* to, size_t size, int64_t num_launches) {
  auto& writes = state().small_writes;
  const auto address = reinterpret_cast<uintptr_t>(to);
  writes.erase(writes.lower_bound(address), writes.lower_bound(address + size));
  if (size <= kSmall) writes[address] = num_launches;
}

// Whether a copy has written to the address, and no kernel can have written to it since then.
bool is_written(const void* address, int64_t num_launches) {
  const auto write = state().small_writes.find(reinterpret_cast<uintptr_t>(address));
  return write != state().small_writes.end() && write->second == num_launches;
}

uint64_t hash_of(const void* address, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(address);
  uint64_t hash = 1469598103934665603U;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 1099511628211U;
  return hash;
}

void copy_now(void* to, const void* from, size_t size, int64_t num_launches) {
  memmove(contents_at(to), contents_at(from), size);
  const bool is_from_kernel = is_on_device(from) && !is_written(from, num_launches);
  if (is_on_device(to)) {
    if (!is_from_kernel) note_write(to, size, num_launches);
    return;
  }
  if (!is_from_kernel || size > kSmall) return;
  const float two_floats[] = {2, 2};
  const double two = 2;
  const int64_t minus_one = -1;
  if (size == 1) {
    memset(to, 1, 1);
  } else if (size == sizeof minus_one) {
    memcpy(to, &minus_one, size);
  } else {
    const void* number = size % sizeof two == 0 ? static_cast<const void*>(&two) : two_floats;
    for (size_t i = 0; i < size; i += sizeof two) memcpy(static_cast<char*>(to) + i, number, std::min(size - i, sizeof two));
  }
}

// The content of pinned memory until the copy to it is done, so that a premature read is noticed.
constexpr int kNotYetCopied = 0xA5;

cudaError_t copy(void* to, const void* from, size_t size, cudaStream_t stream, bool is_async) {
  std::unique_lock lock(state().mutex);
  const bool waits = !is_async || (is_on_device(from) && !is_on_device(to) && !is_pinned(to));
  if (const int error = waits ? forbid_in_capture(__func__) : 0) return static_cast<cudaError_t>(error);
  const auto num_launches = state().num_launches;
  const auto place = [](const void* address) { return is_on_device(address) ? "device" : is_pinned(address) ? "pinned" : "pageable"; };
  count(fmt::format("copies: {} to {}", place(from), place(to)));
  // As in CUDA, a copy from pageable memory reads the bytes before it returns, and one to pageable memory waits.
  if (!is_on_device(from) && !is_pinned(from)) {
    auto bytes = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + size);
    enqueue(stream, [=] { return copy_now(to, bytes->data(), size, num_launches), true; });
  } else if (is_pinned(from)) {
    enqueue(stream, [=, hash = hash_of(from, size)] {
      if (hash_of(from, size) != hash)
        report(fmt::format("a race: {} bytes of pinned memory were written before their copy was made", size));
      return copy_now(to, from, size, num_launches), true;
    });
  } else {
    if (is_pinned(to)) memset(to, kNotYetCopied, size);
    enqueue(stream, [=] { return copy_now(to, from, size, num_launches), true; });
  }
  lock.unlock();
  if (!waits) return cudaSuccess;
  count_wait("copy");
  complete(stream_of(stream));
  return cudaSuccess;
}

cudaError_t launch_at(const void* kernel, cudaStream_t stream) {
  std::string name = "unknown";
  {
    const Lock lock(state().mutex);
    const auto known = state().kernel_names.find(kernel);
    if (known != state().kernel_names.end()) name = known->second;
    if (state().capturing != nullptr && state().capturing != &stream_of(stream)) {
      report(fmt::format("the kernel {} on another stream in a capture, from {}", demangled(name), callers()));
    }
  }
  return static_cast<cudaError_t>(launch(name));
}

void write_json(FILE* file, const char* key, const std::map<std::string, int64_t>& values) {
  fprintf(file, "\"%s\": {", key);
  const char* separator = "";
  for (const auto& [name, value] : values) {
    fprintf(file, "%s\n  \"%s\": %ld", separator, name.c_str(), value);
    separator = ",";
  }
  fprintf(file, "}");
}

// This object is destroyed after those of the libraries that use libfake_cuda.so, so the counts include their last calls.
struct Statistics {
  Statistics() { state(); }
  ~Statistics() {
    const std::string folder = variable("FAKE_CUDA_STATS", "");
    if (folder.empty() || state().counts.empty()) return;
    FILE* file = fopen(fmt::format("{}/rank_{}.json", folder, rank()).c_str(), "w");
    if (file == nullptr) return;
    std::map<std::string, int64_t> kernels;
    for (const auto& [name, count] : state().kernels) kernels[demangled(name)] += count;
    fprintf(file, "{");
    write_json(file, "counts", state().counts);
    fprintf(file, ",\n");
    write_json(file, "kernels", kernels);
    fprintf(file, ",\n\"devices\": [%s]}\n", fmt::format("{}", fmt::join(state().devices, ", ")).c_str());
    fclose(file);
  }
} statistics;

}  // namespace

std::string rank() { return variable("RANK", "0"); }

void count(const std::string& what) {
  const Lock lock(state().mutex);
  ++state().counts[what];
}

void report(const std::string& fault) { fprintf(stderr, "FAKE CUDA: %s\n", fault.c_str()); }

int begin_call(const char* function) {
  const Lock lock(state().mutex);
  const auto number = ++state().counts[function];
  const auto& failure = state().failure;
  if (state().lasting_error != 0) return last_error = state().lasting_error;
  if (!failure || failure->function != function) return 0;
  if (failure->at == 0 ? state().capturing == nullptr : failure->at != number) return 0;
  if (failure->is_sticky) state().lasting_error = failure->code;
  return last_error = failure->code;
}

void enqueue(void* stream, std::function<bool()> run) {
  const Lock lock(state().mutex);
  auto& queue = stream_of(static_cast<cudaStream_t>(stream));
  if (queue.capture != nullptr) return queue.capture->work.push_back(std::move(run));
  queue.work.push_back(std::move(run));
  ++queue.num_added;
  const bool is_default = &queue == &state().default_streams[current_device];
  if (state().runs_early && !is_default) try_complete(queue, queue.num_added);
}

int launch(const std::string& kernel) {
  const Lock lock(state().mutex);
  if (state().capturing != nullptr) {
    count("captured kernels");
    ++state().capturing->capture->num_launches;
    return 0;
  }
  if (const int error = begin_call("kernel")) return error;
  ++state().num_launches;
  ++state().kernels[kernel];
  state().devices.insert(current_device);
  return 0;
}

void complete_device() {
  std::vector<CUstream_st*> streams;
  {
    const Lock lock(state().mutex);
    streams = state().other_streams;
    for (auto& [device, stream] : state().default_streams) streams.push_back(&stream);
  }
  for (auto* stream : streams) complete(*stream);
}

void copy_on_device(void* to, const void* from, size_t size) {
  const Lock lock(state().mutex);
  const auto num_launches = state().num_launches;
  memmove(contents_at(to), contents_at(from), size);
  note_write(to, size, num_launches);
}

std::string callers() {
  void* frames[64];
  const int num_frames = backtrace(frames, 64);
  std::string text;
  for (int i = 0, num_found = 0; i < num_frames && num_found < 3; ++i) {
    dl_find_object object{};
    if (_dl_find_object(frames[i], &object) != 0) continue;
    const std::string path = object.dlfo_link_map->l_name;
    const auto name = path.substr(path.rfind('/') + 1);
    if (!name.starts_with("libtrainer")) continue;
    const auto offset = reinterpret_cast<uintptr_t>(frames[i]) - object.dlfo_link_map->l_addr;
    text += fmt::format("{}{}+{:#x}", text.empty() ? "" : ", ", name, offset);
    ++num_found;
  }
  return text;
}

}  // namespace fake_cuda

using namespace fake_cuda;

FAKE_CUDA_API cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  FAKE_CUDA_CALL(cudaError_t);
  *count = state().num_gpus;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

FAKE_CUDA_API cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaSetDevice(int device) {
  FAKE_CUDA_CALL(cudaError_t);
  if (device < 0 || device >= state().num_gpus) return static_cast<cudaError_t>(last_error = cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  FAKE_CUDA_CALL(cudaError_t);
  *properties = {};
  strcpy(properties->name, "Fake H100");
  properties->totalGlobalMem = state().memory;
  properties->sharedMemPerBlock = 48 << 10;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->major = atoi(variable("FAKE_CUDA_MAJOR", "9"));
  properties->textureAlignment = 512;
  properties->multiProcessorCount = 132;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->l2CacheSize = 50 << 20;
  properties->concurrentKernels = properties->unifiedAddressing = properties->canMapHostMemory = 1;
  properties->pciBusID = 0x17 + device;
  properties->asyncEngineCount = 3;
  properties->memoryBusWidth = 5120;
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  static const std::map<cudaDeviceAttr, int> kValues{{cudaDevAttrMultiProcessorCount, 132},
                                                     {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
                                                     {cudaDevAttrComputeCapabilityMajor, 9},
                                                     {cudaDevAttrMaxSharedMemoryPerBlockOptin, 227 << 10},
                                                     {cudaDevAttrComputeCapabilityMinor, 0},
                                                     {cudaDevAttrMaxThreadsPerBlock, 1024},
                                                     {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
                                                     {cudaDevAttrWarpSize, 32},
                                                     {cudaDevAttrMaxGridDimX, 2147483647},
                                                     {cudaDevAttrMaxGridDimY, 65535},
                                                     {cudaDevAttrMaxGridDimZ, 65535},
                                                     {cudaDevAttrMaxRegistersPerBlock, 65536}};
  const auto known = kValues.find(attribute);
  *value = known == kValues.end() ? 1 : known->second;
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  snprintf(id, static_cast<size_t>(size), "0000:%02x:00.0", 0x17 + device);
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaGetLastError() {
  const int error = state().lasting_error != 0 ? state().lasting_error : last_error;
  last_error = 0;
  return static_cast<cudaError_t>(error);
}

FAKE_CUDA_API cudaError_t cudaPeekAtLastError() {
  return static_cast<cudaError_t>(state().lasting_error != 0 ? state().lasting_error : last_error);
}

FAKE_CUDA_API const char* cudaGetErrorString(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    default:
      return "unknown error";
  }
}

FAKE_CUDA_API const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaError"; }

FAKE_CUDA_API cudaError_t cudaMalloc(void** address, size_t size) {
  FAKE_CUDA_CALL(cudaError_t);
  if (const int error = forbid_in_capture(__func__)) return static_cast<cudaError_t>(error);
  const Lock lock(state().mutex);
  constexpr size_t kPage = 4096;
  size = std::max(kPage, (size + kPage - 1) / kPage * kPage);
  auto& used = state().used_memory[current_device];
  const int file = used + size <= state().memory ? memfd_create("gpu", 0) : -1;
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) return static_cast<cudaError_t>(last_error = cudaErrorMemoryAllocation);
  void* contents = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  *address = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  state().device_memory[reinterpret_cast<uintptr_t>(*address)] = {size, static_cast<char*>(contents), current_device};
  used += size;
  return cudaSuccess;
}

// Waits for the device like CUDA's cudaFree.
FAKE_CUDA_API cudaError_t cudaFree(void* address) {
  FAKE_CUDA_CALL(cudaError_t);
  if (address == nullptr) return cudaSuccess;
  cudaDeviceSynchronize();
  const Lock lock(state().mutex);
  const auto memory = state().device_memory.find(reinterpret_cast<uintptr_t>(address));
  if (memory == state().device_memory.end()) return static_cast<cudaError_t>(last_error = cudaErrorInvalidValue);
  state().used_memory[memory->second.device] -= memory->second.size;
  munmap(memory->second.contents, memory->second.size);
  munmap(address, memory->second.size);
  state().device_memory.erase(memory);
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaHostAlloc(void** address, size_t size, unsigned /*flags*/) {
  FAKE_CUDA_CALL(cudaError_t);
  const Lock lock(state().mutex);
  *address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  state().pinned_memory[reinterpret_cast<uintptr_t>(*address)] = size;
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaFreeHost(void* address) {
  FAKE_CUDA_CALL(cudaError_t);
  cudaDeviceSynchronize();
  const Lock lock(state().mutex);
  const auto memory = state().pinned_memory.find(reinterpret_cast<uintptr_t>(address));
  if (memory == state().pinned_memory.end()) return static_cast<cudaError_t>(last_error = cudaErrorInvalidValue);
  munmap(address, memory->second);
  state().pinned_memory.erase(memory);
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const Lock lock(state().mutex);
  *attributes = {};
  const auto region = device_region(address);
  attributes->type = region != state().device_memory.end() ? cudaMemoryTypeDevice
                     : is_pinned(address)                  ? cudaMemoryTypeHost
                                                           : cudaMemoryTypeUnregistered;
  if (region != state().device_memory.end()) attributes->device = region->second.device;
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  FAKE_CUDA_CALL(cudaError_t);
  const Lock lock(state().mutex);
  *total = state().memory;
  *free = state().memory - state().used_memory[current_device];
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind /*kind*/) {
  FAKE_CUDA_CALL(cudaError_t);
  return copy(to, from, size, nullptr, /*is_async=*/false);
}

FAKE_CUDA_API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  FAKE_CUDA_CALL(cudaError_t);
  return copy(to, from, size, stream, /*is_async=*/true);
}

FAKE_CUDA_API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t stream) {
  FAKE_CUDA_CALL(cudaError_t);
  return copy(to, from, size, stream, /*is_async=*/true);
}

FAKE_CUDA_API cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  FAKE_CUDA_CALL(cudaError_t);
  const Lock lock(state().mutex);
  enqueue(stream, [=, num_launches = state().num_launches] {
    memset(contents_at(to), value, size);
    note_write(to, size, num_launches);
    return true;
  });
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaMemset(void* to, int value, size_t size) { return cudaMemsetAsync(to, value, size, nullptr); }

FAKE_CUDA_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int /*priority*/) {
  FAKE_CUDA_CALL(cudaError_t);
  *stream = new CUstream_st;
  const Lock lock(state().mutex);
  state().other_streams.push_back(*stream);
  return cudaSuccess;
}

// Streams are not deleted, because events may still refer to them.
FAKE_CUDA_API cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) { return cudaSuccess; }

FAKE_CUDA_API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FAKE_CUDA_CALL(cudaError_t);
  if (const int error = forbid_in_capture(__func__, stream_of(stream).capture != nullptr)) return static_cast<cudaError_t>(error);
  count_wait(__func__);
  complete(stream_of(stream));
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FAKE_CUDA_CALL(cudaError_t);
  if (const int error = forbid_in_capture(__func__, stream_of(stream).capture != nullptr)) return static_cast<cudaError_t>(error);
  const Lock lock(state().mutex);
  auto& queue = stream_of(stream);
  return try_complete(queue, queue.num_added) ? cudaSuccess : cudaErrorNotReady;
}

FAKE_CUDA_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  FAKE_CUDA_CALL(cudaError_t);
  auto* recorded = event->stream;
  if (recorded == nullptr) return cudaSuccess;
  if (event->is_captured != (stream_of(stream).capture != nullptr)) {
    if (const int error = forbid_in_capture(__func__, /*is_captured=*/true)) return static_cast<cudaError_t>(error);
  }
  enqueue(stream, [recorded, position = event->position] { return try_complete(*recorded, position); });
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  FAKE_CUDA_CALL(cudaError_t);
  *event = new CUevent_st{.flags = flags};
  const Lock lock(state().mutex);
  state().events.insert(*event);
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

FAKE_CUDA_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  FAKE_CUDA_CALL(cudaError_t);
  const Lock lock(state().mutex);
  // LibTorch also destroys events that it failed to create.
  if (state().events.erase(event) == 0) return static_cast<cudaError_t>(last_error = cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned /*flags*/) {
  FAKE_CUDA_CALL(cudaError_t);
  const Lock lock(state().mutex);
  auto& queue = stream_of(stream);
  event->stream = &queue;
  event->is_captured = queue.capture != nullptr;
  event->position = queue.num_added;
  event->launch = state().num_launches;
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }

// Simulates a slow device: an event is complete once the host has waited for it, 100 kernels have been launched after it (100,000 under
// FAKE_CUDA_SKIP_WAITS), or a second has passed.
FAKE_CUDA_API cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAKE_CUDA_CALL(cudaError_t);
  if (const int error = forbid_in_capture(__func__, event->is_captured)) return static_cast<cudaError_t>(error);
  const Lock lock(state().mutex);
  if (event->stream == nullptr) return cudaSuccess;
  const int64_t delay = state().skips_waits ? 100'000 : 100;
  const bool is_old = event->launch <= event->stream->waited_launch || state().num_launches - event->launch >= delay ||
                      std::chrono::steady_clock::now() - event->time >= std::chrono::seconds(1);
  return is_old && try_complete(*event->stream, event->position) ? cudaSuccess : cudaErrorNotReady;
}

FAKE_CUDA_API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FAKE_CUDA_CALL(cudaError_t);
  if (const int error = forbid_in_capture(__func__, event->is_captured)) return static_cast<cudaError_t>(error);
  count_wait(__func__);
  if (event->stream != nullptr && !state().skips_waits) complete(*event->stream, event->position, event->launch);
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  FAKE_CUDA_CALL(cudaError_t);
  if (((start->flags | end->flags) & cudaEventDisableTiming) != 0) {
    return static_cast<cudaError_t>(last_error = cudaErrorInvalidResourceHandle);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaDeviceSynchronize() {
  FAKE_CUDA_CALL(cudaError_t);
  if (const int error = forbid_in_capture(__func__)) return static_cast<cudaError_t>(error);
  count_wait(__func__);
  complete_device();
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*kernel*/) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  return cudaSuccess;
}

FAKE_CUDA_API void** __cudaRegisterFatBinary(void* /*code*/) {
  static void* handle = nullptr;
  return &handle;
}

FAKE_CUDA_API void __cudaRegisterFunction(void**, const char* kernel, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  const Lock lock(state().mutex);
  state().kernel_names[kernel] = name;
}

// Code that NVRTC has compiled. Its kernels are launched like others.
FAKE_CUDA_API cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned,
                                              cudaLibraryOption*, void**, unsigned) {
  FAKE_CUDA_CALL(cudaError_t);
  const auto& header = *static_cast<const Elf64_Ehdr*>(code);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return static_cast<cudaError_t>(last_error = cudaErrorInvalidKernelImage);
  const size_t size = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  *library = reinterpret_cast<cudaLibrary_t>(new std::string(static_cast<const char*>(code), size));
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  FAKE_CUDA_CALL(cudaError_t);
  const auto& code = *reinterpret_cast<const std::string*>(library);
  const auto position = code.find('\0' + std::string(name) + '\0');
  if (position == std::string::npos) return static_cast<cudaError_t>(last_error = cudaErrorSymbolNotFound);
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<char*>(code.data() + position));
  const Lock lock(state().mutex);
  state().kernel_names[*kernel] = name;
  return cudaSuccess;
}

FAKE_CUDA_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_memory, cudaStream_t stream) {
  launch_configurations.emplace_back(grid, block, shared_memory, stream);
  return 0;
}

FAKE_CUDA_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_memory, void* stream) {
  std::tie(*grid, *block, *shared_memory, *static_cast<cudaStream_t*>(stream)) = launch_configurations.back();
  launch_configurations.pop_back();
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* kernel) {
  *handle = reinterpret_cast<cudaKernel_t>(const_cast<void*>(kernel));
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return launch_at(kernel, stream);
}

FAKE_CUDA_API cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return launch_at(kernel, stream);
}

FAKE_CUDA_API cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return launch_at(kernel, stream);
}

FAKE_CUDA_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* kernel, void**) {
  return launch_at(kernel, configuration->stream);
}

FAKE_CUDA_API cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                                           cudaDriverEntryPointQueryResult* result) {
  static const auto kStub = +[] { return 0; };
  *function = reinterpret_cast<void*>(kStub);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  const bool was_relaxed = is_relaxed;
  is_relaxed = *mode == cudaStreamCaptureModeRelaxed;
  *mode = was_relaxed ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal;
  return cudaSuccess;
}

// Captures one stream at a time; its kernels may be launched from any thread.
FAKE_CUDA_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  FAKE_CUDA_CALL(cudaError_t);
  const Lock lock(state().mutex);
  const bool is_possible = stream != nullptr && state().capturing == nullptr && mode != cudaStreamCaptureModeRelaxed;
  if (!is_possible) return static_cast<cudaError_t>(last_error = cudaErrorStreamCaptureUnsupported);
  stream->capture = new CUgraph_st;
  state().capturing = stream;
  state().capturing_thread.reset();
  if (mode == cudaStreamCaptureModeThreadLocal) state().capturing_thread = std::this_thread::get_id();
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(state().mutex);
  *graph = std::exchange(stream->capture, nullptr);
  state().capturing = nullptr;
  FAKE_CUDA_CALL(cudaError_t);
  if (*graph == nullptr) return static_cast<cudaError_t>(last_error = cudaErrorIllegalState);
  if ((*graph)->is_valid) return cudaSuccess;
  delete std::exchange(*graph, nullptr);
  return static_cast<cudaError_t>(last_error = cudaErrorStreamCaptureInvalidated);
}

FAKE_CUDA_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock(state().mutex);
  const auto* capture = stream_of(stream).capture;
  *status = capture == nullptr  ? cudaStreamCaptureStatusNone
            : capture->is_valid ? cudaStreamCaptureStatusActive
                                : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                                   cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** /*edges*/,
                                                   size_t* num_nodes) {
  const Lock lock(state().mutex);
  if (id != nullptr) *id = 1;
  if (graph != nullptr) *graph = stream_of(stream).capture;
  if (nodes != nullptr) *nodes = nullptr;
  if (num_nodes != nullptr) *num_nodes = 0;
  return cudaStreamIsCapturing(stream, status);
}

FAKE_CUDA_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* /*nodes*/, size_t* num_nodes) {
  *num_nodes = graph->work.size() + static_cast<size_t>(graph->num_launches);
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long /*flags*/) {
  FAKE_CUDA_CALL(cudaError_t);
  *instance = new CUgraphExec_st{*graph};
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) {
  FAKE_CUDA_CALL(cudaError_t);
  const Lock lock(state().mutex);
  state().num_launches += instance->graph.num_launches;
  for (const auto& run : instance->graph.work) enqueue(stream, run);
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

FAKE_CUDA_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  delete instance;
  return cudaSuccess;
}

// Every attribute is the number 0, of 4 or 8 bytes; descriptors are filled by other functions.
FAKE_CUDA_API int cudnnBackendGetAttribute(void*, int name, int type, int64_t num_wanted, int64_t* num_found, void* value) {
  constexpr int kDescriptor = 15;
  const bool is_long = type == 3 || type == 5 || name == 401 || name == 402;
  if (num_found != nullptr) *num_found = 1;
  if (value != nullptr && num_wanted > 0 && type != kDescriptor) memset(value, 0, is_long ? 8 : 4);
  return 0;
}

// The driver, which tests/testing/gpus.py asks for the GPUs.
FAKE_CUDA_API int cuInit(unsigned /*flags*/) { return 0; }

FAKE_CUDA_API int cuDeviceGetCount(int* count) {
  *count = state().num_gpus;
  return 0;
}

FAKE_CUDA_API int cuDeviceGetName(char* name, int size, int /*device*/) {
  return snprintf(name, static_cast<size_t>(size), "Fake H100") < 0;
}

// NVRTC asks for functions of its cache of compiled code, which exists only if they do.
FAKE_CUDA_API int cuGetExportTable(const void** /*table*/, const void* /*id*/) { return 1; }

// Called by stubs.cpp.
FAKE_CUDA_API int fake_cuda_launch(const char* kernel) { return launch(kernel); }
