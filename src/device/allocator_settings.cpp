#include "device/allocator_settings.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "trainer/error.h"

namespace trainer::device {
namespace {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

constexpr const char* kBackend = "backend";

// LibTorch's CUDA library adds these keys to the parser when it is loaded (c10/cuda/CUDAAllocatorConfig.h); their values are checked then.
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
    return near.empty() ? fmt::format("the allocator has no key \"{}\"; it has {}", key, fmt::join(names, ", "))
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
    throw UsageError(fmt::format("runtime.cuda_allocator: \"{}\": a value is not a number", settings));
  }
}

}  // namespace trainer::device
