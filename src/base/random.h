#pragma once
// Random text that nobody can guess, and a hash of text; reproducible random numbers are in trainer/random.h.

#include <cstdint>
#include <string>
#include <string_view>

namespace trainer {

// 64 hexadecimal digits from the system's generator, which nobody can guess. Throws Error.
std::string random_token();

// A hash of 64 bits, the same everywhere (Fowler, Noll and Vo: FNV-1a).
inline uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 0x100000001B3ULL;
  return hash;
}

}  // namespace trainer
