#pragma once
// The errors for files that cannot be read, and access to the bytes of a file.

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>

namespace trainer::images {

// Throws std::runtime_error: the file is `form` ("a GIF image"), which is not supported.
[[noreturn]] void refuse_form(std::string_view form);

// Throws std::runtime_error: the file is a 16-bit grey image, but 8 bits are needed.
[[noreturn]] void refuse_grey_16();

// Throws std::runtime_error: the file is not a 16-bit grey image, but dataset.mode: grey16 needs one.
[[noreturn]] void refuse_no_grey_16();

// Throws std::runtime_error: the file is `form` ("a TIFF image of …"), whose values only dataset.mode: raw can represent.
[[noreturn]] void refuse_but_in_raw(std::string_view form);

// Throws std::runtime_error for a file in a format that is not supported. The message names the format if the first bytes show it.
[[noreturn]] void refuse_format(std::span<const uint8_t> file);

// Access to the bytes of a file.

[[noreturn]] inline void throw_truncated() { throw std::runtime_error("the file ends too early"); }

// Returns `count` bytes at `offset`. Throws std::runtime_error if they reach beyond the end.
inline std::span<const uint8_t> bytes_at(std::span<const uint8_t> file, size_t offset, size_t count) {
  if (offset > file.size() || count > file.size() - offset) throw_truncated();
  return file.subspan(offset, count);
}

// An integer of `count` bytes.
inline uint32_t little_endian(std::span<const uint8_t> file, size_t offset, size_t count) {
  uint32_t value = 0;
  size_t shift = 0;
  for (const uint32_t byte : bytes_at(file, offset, count)) {
    value |= byte << shift;
    shift += 8;
  }
  return value;
}
inline uint32_t big_endian(std::span<const uint8_t> file, size_t offset, size_t count = 4) {
  uint32_t value = 0;
  for (const uint32_t byte : bytes_at(file, offset, count)) value = value << 8 | byte;
  return value;
}

inline bool has_text(std::span<const uint8_t> file, size_t offset, std::string_view text) {
  if (offset > file.size() || text.size() > file.size() - offset) return false;
  return std::string_view(reinterpret_cast<const char*>(file.data()) + offset, text.size()) == text;
}

}  // namespace trainer::images
