#include "images/headers.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "images/bytes.h"
#include "images/size.h"

namespace trainer::images {
namespace {

enum BmpCompression : uint32_t { kNone = 0, kRunLength8 = 1, kRunLength4 = 2, kMasks = 3 };
using Masks = std::array<uint32_t, 3>;  // red, green, blue
constexpr Masks kMasks555 = {0x7C00, 0x3E0, 0x1F};
constexpr Masks kMasks565 = {0xF800, 0x7E0, 0x1F};
constexpr Masks kMasks888 = {0xFF0000, 0xFF00, 0xFF};

// Of the files with masks, OpenCV reads these.
bool is_known(uint32_t bits, const Masks& masks) {
  if (bits == 16) return masks == kMasks555 || masks == kMasks565;
  return bits == 32 && (masks == kMasks888 || masks == Masks{});
}

void read_masks(std::span<const uint8_t> file, BmpHeader& header) {
  Masks masks{};
  for (size_t i = 0; i < masks.size(); ++i) masks[i] = little_endian(file, 54 + 4 * i, 4);
  if (!is_known(header.bits, masks)) throw std::runtime_error("it is a BMP file with an unusual order of the colours");
  if (masks == kMasks565) header.green_bits = 6;
}

// The form of OS/2, without a compression.
BmpHeader read_short_bmp_header(std::span<const uint8_t> file) {
  return {.offset = little_endian(file, 10, 4),
          .width = little_endian(file, 18, 2),
          .height = little_endian(file, 20, 2),
          .bits = little_endian(file, 24, 2)};
}

BmpHeader read_bmp_header(std::span<const uint8_t> file) {
  // Rows from top to bottom have a negative height.
  const auto height = std::abs(int64_t{static_cast<int32_t>(little_endian(file, 22, 4))});
  return {.offset = little_endian(file, 10, 4),
          .width = little_endian(file, 18, 4),
          .height = static_cast<uint32_t>(height),
          .bits = little_endian(file, 28, 2),
          .green_bits = 5};
}

void check_bmp_length(std::span<const uint8_t> file, const BmpHeader& header) {
  const uint64_t row = (uint64_t{header.width} * header.bits + 31) / 32 * 4;
  if (header.offset > file.size() || row * header.height > file.size() - header.offset) throw std::runtime_error("the file ends too early");
}

}  // namespace

bool is_webp(std::span<const uint8_t> file) { return has_text(file, 0, "RIFF") && has_text(file, 8, "WEBP"); }

void check_webp(std::span<const uint8_t> file) {
  bytes_at(file, 8, little_endian(file, 4, 4));
  if (!has_text(file, 12, "VP8X")) return;  // the other forms have no more than 16384 pixels in a direction
  if ((bytes_at(file, 20, 1)[0] & 0x02) != 0) throw std::runtime_error("it is an animation");
  check_size(uint64_t{little_endian(file, 24, 3)} + 1, uint64_t{little_endian(file, 27, 3)} + 1);
}

bool is_bmp(std::span<const uint8_t> file) { return has_text(file, 0, "BM"); }

BmpHeader check_bmp(std::span<const uint8_t> file) {
  const auto header_size = little_endian(file, 14, 4);
  const bool is_short = header_size == 12;
  if (!is_short && (header_size < 40 || header_size > 124)) throw std::runtime_error("it is not a BMP file that this program reads");
  auto header = is_short ? read_short_bmp_header(file) : read_bmp_header(file);
  check_size(header.width, header.height);
  const auto compression = is_short ? kNone : little_endian(file, 30, 4);
  if (compression > kMasks)
    throw std::runtime_error(fmt::format("it is a BMP file of compression {}, which this program does not read", compression));
  if (compression == kMasks) read_masks(file, header);
  if (!is_short && header.bits <= 8 && little_endian(file, 46, 4) > 256) throw std::runtime_error("it is damaged: it has too many colours");
  if (compression == kNone || compression == kMasks) check_bmp_length(file, header);
  return header;
}

}  // namespace trainer::images
