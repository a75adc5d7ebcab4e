#pragma once
// Byte encodings of file formats: little-endian integers and protobuf messages.

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trainer::little_endian {

// Unsigned integers, lowest byte first; no alignment is needed.

template <std::unsigned_integral T>
void append(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

// `bytes` must hold at least sizeof(T) bytes.
template <std::unsigned_integral T>
T load(const uint8_t* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | static_cast<T>(bytes[i]) << (8 * i));
  return value;
}

}  // namespace trainer::little_endian

namespace trainer::protobuf {

// Writes messages in protobuf's wire format. Google's library is not used because LibTorch exports the functions of an old version of that
// library to the whole process, where they could conflict with those of another version.

enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

inline void append_key(std::string& out, unsigned field, Wire wire) { append_varint(out, (field << 3) | static_cast<unsigned>(wire)); }

inline void append_int64(std::string& out, unsigned field, int64_t value) {
  append_key(out, field, Wire::kVarint);
  append_varint(out, static_cast<uint64_t>(value));
}

inline void append_double(std::string& out, unsigned field, double value) {
  append_key(out, field, Wire::kFixed64);
  little_endian::append(out, std::bit_cast<uint64_t>(value));
}

inline void append_float(std::string& out, unsigned field, float value) {
  append_key(out, field, Wire::kFixed32);
  little_endian::append(out, std::bit_cast<uint32_t>(value));
}

// Appends a field of bytes, of text or of a nested message, which all have this encoding.
inline void append_bytes(std::string& out, unsigned field, std::string_view bytes) {
  append_key(out, field, Wire::kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

}  // namespace trainer::protobuf
