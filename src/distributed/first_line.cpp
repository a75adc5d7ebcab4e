#include "distributed/first_line.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string_view>

#include "launch/world/host_resources.h"

namespace trainer::distributed {

namespace {

std::string line_at(const std::string& text, size_t begin) { return text.substr(begin, text.find('\n', begin) - begin); }

// The text is "NCCL error in: FILE:LINE, REASON, NCCL version V" and further lines; the line after "Last error:" is the most informative.
std::string explain_nccl(const std::string& text) {
  const std::string in_first_line = line_at(text, 0);
  const size_t comma = in_first_line.find(", ");
  const std::string reason = "NCCL: " + (comma == std::string::npos ? in_first_line : in_first_line.substr(comma + 2));
  constexpr std::string_view kLast = "Last error:\n";
  const size_t last = text.find(kLast);
  const auto detail = last == std::string::npos ? "" : line_at(text, last + kLast.size());
  return detail.empty() ? reason : reason + ": " + detail;
}

}  // namespace

std::string message_of(const std::exception& error) {
  if (const auto limit = world::explain_thread_limit(error); !limit.empty()) return limit;
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

std::string first_line(const std::exception& error) {
  std::string text = message_of(error);
  if (text.starts_with("NCCL error in:")) return explain_nccl(text);
  // "[enforce fail at …] x. reason" and "[/path/of/gloo/pair.cc:123] reason" begin with the source location.
  if (text.starts_with('[')) {
    const size_t end = text.find("] ");
    if (end != std::string::npos) text = text.substr(end + 2);
  }
  // The message of a timeout lists keys of the store, which mean nothing to a user.
  for (const auto* time_out : {"wait timeout after", "Wait timeout", "Timeout waiting for key"}) {
    if (text.find(time_out) != std::string::npos) return "timed out";
  }
  // Messages of TorchScript begin with an empty line.
  return line_at(text, std::min(text.find_first_not_of('\n'), text.size()));
}

void rethrow_own_error(const std::exception& error) {
  // LibTorch reports connections by DistError, and gloo by exceptions of its own; a plain c10::Error is about arguments, device or memory.
  const bool is_of_libtorch = dynamic_cast<const c10::Error*>(&error) != nullptr && dynamic_cast<const c10::DistError*>(&error) == nullptr;
  const bool is_own = is_of_libtorch || dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                      dynamic_cast<const std::logic_error*>(&error) != nullptr ||
                      message_of(error).find("unhandled cuda error") != std::string::npos;
  if (is_own) throw;
}

}  // namespace trainer::distributed
