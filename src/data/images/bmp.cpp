#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "data/images/formats.h"
#include "data/images/refusal.h"
#include "data/images/traits.h"

namespace trainer::images {
namespace {

constexpr uint32_t kFileHeaderBytes = 14;

bool has_usual_colours(std::span<const uint8_t> file, uint32_t bits, uint32_t compression) {
  enum Compression : uint32_t { kNone = 0, kMasks = 3 };
  if (compression == kMasks) {
    return bits == 32 && little_endian(file, 54, 4) == 0xFF0000 && little_endian(file, 58, 4) == 0xFF00 &&
           little_endian(file, 62, 4) == 0xFF;
  }
  return compression == kNone && (bits == 1 || bits == 4 || bits == 8 || bits == 24 || bits == 32);
}

}  // namespace

bool is_bmp(std::span<const uint8_t> file) { return has_text(file, 0, "BM"); }

void check_bmp(std::span<const uint8_t> file) {
  const auto header_bytes = little_endian(file, 14, 4);
  constexpr std::array<uint32_t, 6> kSizes = {40, 52, 56, 64, 108, 124};
  if (std::ranges::find(kSizes, header_bytes) == kSizes.end()) {
    refuse_form(fmt::format("a BMP image with a header of {} bytes", header_bytes));
  }
  const auto width = little_endian(file, 18, 4);
  const auto signed_height = little_endian(file, 22, 4);  // negative if the first row is the top
  const auto height = std::min(signed_height, 0U - signed_height);
  check_size(width, height);
  const auto bits = little_endian(file, 28, 2);
  if (const auto compression = little_endian(file, 30, 4); !has_usual_colours(file, bits, compression)) {
    refuse_form(fmt::format("a BMP image of {} bits with compression {}", bits, compression));
  }
  const auto num_stated = little_endian(file, 46, 4);
  const auto num_colours = bits > 8 ? 0 : num_stated == 0 ? 1U << bits : num_stated;
  if (num_colours > 256) {
    throw std::runtime_error(fmt::format("it is damaged: its palette has {} colours, but at most 256 are possible", num_colours));
  }
  const auto offset = little_endian(file, 10, 4);
  if (offset < kFileHeaderBytes + header_bytes + 4 * num_colours) throw std::runtime_error("it is damaged: its pixels overlap its header");
  bytes_at(file, offset, (uint64_t{width} * bits + 31) / 32 * 4 * height);
}

}  // namespace trainer::images
