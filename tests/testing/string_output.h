#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace trainer::testing {

// Keeps what is written.
class StringOutput : public Output {
 public:
  void write(std::string_view bytes) override { content_ += bytes; }
  const std::string& content() const { return content_; }

 private:
  std::string content_;
};

inline std::span<const uint8_t> as_bytes(const std::string& content) {
  return {reinterpret_cast<const uint8_t*>(content.data()), content.size()};
}

}  // namespace trainer::testing
