#pragma once
// Parts of pickle programs, for tests that build files byte by byte.

#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/bytes.h"

namespace trainer::checkpoint {

// The instruction that makes a text.
inline std::string text(const std::string& content) {
  std::string instructions = "X";
  little_endian::append(instructions, static_cast<uint32_t>(content.size()));
  return instructions + content;
}

// The instruction that makes an integer of 64 bits.
inline std::string integer(int64_t value) {
  std::string instructions = "\x8a\x08";
  little_endian::append(instructions, static_cast<uint64_t>(value));
  return instructions;
}

inline std::string tuple(std::initializer_list<int64_t> values) {
  std::string instructions = "(";
  for (const auto value : values) instructions += integer(value);
  return instructions + "t";
}

}  // namespace trainer::checkpoint
