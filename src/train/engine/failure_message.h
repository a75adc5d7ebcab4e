#pragma once

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <exception>
#include <new>
#include <oneapi/dnnl/dnnl_common.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/text.h"
#include "train/engine/parts.h"
#include "trainer/error.h"

namespace trainer::engine {

// The message for an error that this program did not throw itself: where in the training it happened, and what to do if memory ran out.
std::string describe_failure(const std::exception& error, const Parts& parts);

// Whether an exception means that memory ran out, on the host or on a GPU. LibTorch's CPU allocator, its allocator of page-locked memory,
// cuDNN, cuBLAS and NCCL throw general errors, which can be distinguished only by their messages. oneDNN, which needs memory for the
// kernels that it compiles, throws an error with a status.
inline bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr || dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (const auto* kernel = dynamic_cast<const dnnl::error*>(&error)) return kernel->status == dnnl_out_of_memory;
  const auto* general = dynamic_cast<const c10::Error*>(&error);
  if (general == nullptr) return false;
  const std::string_view message = general->msg();
  constexpr std::array<std::string_view, 4> kTexts = {"can't allocate memory", "not enough memory", "out of memory",
                                                      "_STATUS_ALLOC_FAILED"};
  return std::ranges::any_of(kTexts, [&](std::string_view text) { return message.find(text) != message.npos; });
}

// Whether an exception means that a size chosen by the user is more than memory can hold: is_out_of_memory(), or the number of bytes
// overflows.
inline bool is_too_large(const std::exception& error) {
  if (is_out_of_memory(error) || dynamic_cast<const std::length_error*>(&error) != nullptr) return true;
  const auto* general = dynamic_cast<const c10::Error*>(&error);
  const std::string_view message = general != nullptr ? std::string_view(general->msg()) : std::string_view();
  return message.find("overflow") != std::string_view::npos || message.find("negative dimension") != std::string_view::npos;
}

// The number of bytes that LibTorch's CPU allocator could not allocate, if the message contains it.
inline std::optional<uint64_t> bytes_asked_for(const std::exception& error) {
  constexpr std::string_view kBefore = "you tried to allocate ";
  const auto* general = dynamic_cast<const c10::Error*>(&error);
  const std::string_view message = general != nullptr ? std::string_view(general->msg()) : std::string_view();
  const size_t begin = message.find(kBefore);
  uint64_t num_bytes = 0;
  if (begin == std::string_view::npos) return std::nullopt;
  const auto* first = message.data() + begin + kBefore.size();
  return std::from_chars(first, message.data() + message.size(), num_bytes).ec == std::errc() ? std::optional(num_bytes) : std::nullopt;
}

// Returns the result of `build`. Throws UsageError when memory runs out; `what`: what needed the memory.
template <class Build>
auto build_in_memory(const std::string& what, const char* remedy, const Build& build) {
  try {
    return build();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!is_too_large(error)) throw;
    const auto num_bytes = bytes_asked_for(error);
    throw UsageError(fmt::format("out of memory for {}{}; {}", what,
                                 num_bytes ? fmt::format(" (one of its tensors needs {})", format_bytes(*num_bytes)) : "", remedy));
  }
}

}  // namespace trainer::engine
