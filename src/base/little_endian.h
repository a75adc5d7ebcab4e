#pragma once
// Unsigned integers as file formats store them: lowest byte first, at any address.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

namespace trainer::little_endian {

template <std::unsigned_integral T>
void append(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

// `bytes`: at least sizeof(T) of them.
template <std::unsigned_integral T>
T load(const uint8_t* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | static_cast<T>(bytes[i]) << (8 * i));
  return value;
}

}  // namespace trainer::little_endian
