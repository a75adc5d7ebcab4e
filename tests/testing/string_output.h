#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/output.h"

namespace trainer::testing {

// Stores the written bytes.
class StringOutput : public checkpoint::Output {
 public:
  void write(const void* data, size_t size) override { content_.append(static_cast<const char*>(data), size); }
  const std::string& content() const { return content_; }

 private:
  std::string content_;
};

inline std::span<const uint8_t> as_bytes(const std::string& content) {
  return {reinterpret_cast<const uint8_t*>(content.data()), content.size()};
}

}  // namespace trainer::testing
