#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <oneapi/dnnl/dnnl_common.hpp>
#include <string_view>

namespace trainer::engine {

// Whether an exception means that memory ran out, on the host or on a GPU. LibTorch's CPU allocator reports it as a general error; oneDNN,
// which needs memory for the kernels that it compiles, as a status.
inline bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr || dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (const auto* kernel = dynamic_cast<const dnnl::error*>(&error)) return kernel->status == dnnl_out_of_memory;
  const auto* general = dynamic_cast<const c10::Error*>(&error);
  if (general == nullptr) return false;
  const std::string_view message = general->msg();
  return message.find("can't allocate memory") != std::string_view::npos || message.find("not enough memory") != std::string_view::npos;
}

}  // namespace trainer::engine
