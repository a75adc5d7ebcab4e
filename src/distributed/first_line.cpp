#include "distributed/first_line.h"

#include <c10/util/Exception.h>

#include <new>

#include "launch/world/host_resources.h"

namespace trainer::distributed {

std::string first_line(const std::exception& error) {
  if (const auto limit = world::explain_thread_limit(error); !limit.empty()) return limit;
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  // "[enforce fail at …] x. reason" and "[/path/of/gloo/pair.cc:123] reason" begin with the source location.
  if (text.starts_with('[')) {
    const size_t end = text.find("] ");
    if (end != std::string::npos) text = text.substr(end + 2);
  }
  // The keys of the store that a time-out names tell a user nothing.
  for (const auto* time_out : {"wait timeout after", "Wait timeout", "Timeout waiting for key"}) {
    if (text.find(time_out) != std::string::npos) return "no answer in time";
  }
  return text.substr(0, text.find('\n'));
}

void rethrow_own_error(const std::exception& error) {
  const bool is_own = dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr ||
                      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                      dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  if (is_own) throw;
}

}  // namespace trainer::distributed
