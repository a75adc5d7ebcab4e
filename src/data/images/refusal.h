#pragma once
// Why a file is not read.

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>

namespace trainer::images {

// Throws std::runtime_error: it is `form` ("a GIF image"), which this program does not read.
[[noreturn]] void refuse_form(std::string_view form);

// Throws std::runtime_error: it has 16 bits of grey, and 8 are asked for.
[[noreturn]] void refuse_grey_16();

// Throws std::runtime_error: 16 bits of grey are asked for, and it has none.
[[noreturn]] void refuse_no_grey_16();

// Throws std::runtime_error: it is `form` ("a TIFF image of …"), of which dataset.mode: raw keeps what other modes cannot.
[[noreturn]] void refuse_but_in_raw(std::string_view form);

// Throws std::runtime_error with what the file is, as far as its first bytes say so. For files of none of the formats that are read.
[[noreturn]] void refuse_format(std::span<const uint8_t> file);

// OpenCV writes some of its errors to std::cerr, whatever its log level is.

// While one exists, nothing that its thread writes to std::cerr appears.
class QuietErrors {
 public:
  QuietErrors();
  ~QuietErrors();
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;
};

// Integers in the bytes of a file.

[[noreturn]] inline void throw_truncated() { throw std::runtime_error("the file ends too early"); }

// `count` bytes at `offset`. Throws std::runtime_error past the end.
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
