#pragma once
// Unpredictable random text, and a hash of text; reproducible random numbers are in trainer/random.h.

#include <cstdint>
#include <string>
#include <string_view>

namespace trainer {

// 64 hexadecimal digits from the system's secure random generator. Throws Error.
std::string random_token();

// A 64-bit hash that is the same on every platform (FNV-1a by Fowler, Noll and Vo).
inline uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 0x100000001B3ULL;
  return hash;
}

}  // namespace trainer
