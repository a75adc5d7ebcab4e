#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <utility>
#include <vector>

#include "data/images/formats.h"
#include "data/images/refusal.h"
#include "data/images/traits.h"

namespace trainer::images {
namespace {

enum Compression : uint32_t { kNone = 0, kRunLength8 = 1, kRunLength4 = 2, kMasks = 3 };
constexpr uint32_t kFileHeaderBytes = 14;
constexpr uint32_t kShortHeaderBytes = 12;  // the header of OS/2 bitmaps
constexpr size_t kMasksOffset = 54;

using Rgb = std::array<uint8_t, 3>;
using Masks = std::array<uint32_t, 3>;  // red, green, blue
constexpr Masks kMasks555 = {0x7C00, 0x3E0, 0x1F};
constexpr Masks kMasks565 = {0xF800, 0x7E0, 0x1F};
constexpr Masks kMasks888 = {0xFF0000, 0xFF00, 0xFF};

struct BmpHeader {
  uint32_t size = 0;
  uint32_t width = 0;
  uint32_t height = 0;
  bool begins_at_top = false;
  uint32_t bits = 0;  // per pixel
  uint32_t compression = kNone;
  uint32_t num_colours = 0;  // in the palette
  uint32_t colour_bytes = 4;
  uint32_t offset = 0;  // where the pixels begin in the file
};

BmpHeader read_header(std::span<const uint8_t> file) {
  BmpHeader header{.size = little_endian(file, 14, 4)};
  constexpr std::array<uint32_t, 7> kSizes = {kShortHeaderBytes, 40, 52, 56, 64, 108, 124};
  if (std::ranges::find(kSizes, header.size) == kSizes.end())
    refuse_form(fmt::format("a BMP image with a header of {} bytes", header.size));
  header.offset = little_endian(file, 10, 4);
  if (header.size == kShortHeaderBytes) {
    header.width = little_endian(file, 18, 2);
    header.height = little_endian(file, 20, 2);
    header.bits = little_endian(file, 24, 2);
    header.colour_bytes = 3;
  } else {
    const auto height = static_cast<int32_t>(little_endian(file, 22, 4));
    header.width = little_endian(file, 18, 4);
    header.height = height < 0 ? 0U - static_cast<uint32_t>(height) : static_cast<uint32_t>(height);
    header.begins_at_top = height < 0;
    header.bits = little_endian(file, 28, 2);
    header.compression = little_endian(file, 30, 4);
    header.num_colours = little_endian(file, 46, 4);
  }
  check_size(header.width, header.height);
  if (header.bits > 8) return header;
  if (header.bits != 1 && header.bits != 4 && header.bits != 8) refuse_form(fmt::format("a BMP image of {} bits", header.bits));
  if (header.num_colours == 0) header.num_colours = 1U << header.bits;
  if (header.num_colours > 256) {
    throw std::runtime_error(fmt::format("it is damaged: its palette has {} colours, but at most 256 are possible", header.num_colours));
  }
  // Some programs store the end of the header as the offset of the pixels, although the palette follows the header.
  const auto palette = kFileHeaderBytes + header.size;
  if (header.offset == palette || header.offset == 0) header.offset = palette + header.colour_bytes * header.num_colours;
  return header;
}

std::array<Rgb, 256> read_palette(std::span<const uint8_t> file, const BmpHeader& header) {
  std::array<Rgb, 256> palette{};
  for (size_t i = 0; i < header.num_colours; ++i) {
    const auto bgr = bytes_at(file, kFileHeaderBytes + header.size + header.colour_bytes * i, 3);
    palette[i] = {bgr[2], bgr[1], bgr[0]};
  }
  return palette;
}

Masks read_masks(std::span<const uint8_t> file, const BmpHeader& header) {
  Masks masks = header.bits == 16 ? kMasks555 : kMasks888;
  if (header.compression == kNone) return masks;
  for (size_t i = 0; i < masks.size(); ++i) masks[i] = little_endian(file, kMasksOffset + 4 * i, 4);
  if (header.bits == 32 && masks == Masks{}) return kMasks888;
  const auto is_byte = [](uint32_t mask) { return mask == 0xFF || mask == 0xFF00 || mask == 0xFF0000 || mask == 0xFF000000; };
  const bool are_distinct = masks[0] != masks[1] && masks[0] != masks[2] && masks[1] != masks[2];
  const bool is_known = header.bits == 32   ? std::ranges::all_of(masks, is_byte) && are_distinct
                        : header.bits == 16 ? masks == kMasks555 || masks == kMasks565
                                            : masks == kMasks888;
  if (!is_known) refuse_form(fmt::format("a BMP image with the colour masks {:X}, {:X} and {:X}", masks[0], masks[1], masks[2]));
  return masks;
}

// Writes pixel(row, x) for each pixel.
template <class Pixel>
void read_rows(std::span<const uint8_t> file, const BmpHeader& header, data::RgbImage& image, const Pixel& pixel) {
  const uint64_t row_bytes = (uint64_t{header.width} * header.bits + 31) / 32 * 4;
  const auto data = bytes_at(file, header.offset, row_bytes * header.height);
  allocate(header.width, header.height, image);
  uint8_t* rgb = image.pixels.data();
  for (uint32_t y = 0; y < header.height; ++y) {
    const uint8_t* const row = data.data() + row_bytes * (header.begins_at_top ? y : header.height - 1 - y);
    for (uint32_t x = 0; x < header.width; ++x) rgb = std::ranges::copy(pixel(row, x), rgb).out;
  }
}

void read_direct_colours(std::span<const uint8_t> file, const BmpHeader& header, data::RgbImage& image) {
  const auto masks = read_masks(file, header);
  std::array<int, 3> shifts{};
  std::ranges::transform(masks, shifts.begin(), [](uint32_t mask) { return std::countr_zero(mask); });
  if (header.bits == 16) {
    read_rows(file, header, image, [&](const uint8_t* row, uint32_t x) {
      const auto value = static_cast<uint32_t>(row[size_t{2} * x] | row[size_t{2} * x + 1] << 8);
      const auto channel = [&](size_t c) {
        return static_cast<uint8_t>(((value & masks[c]) >> shifts[c]) * 255 / (masks[c] >> shifts[c]));
      };
      return Rgb{channel(0), channel(1), channel(2)};
    });
  } else {
    read_rows(file, header, image,
              [bytes = header.bits / 8, red = shifts[0] / 8, green = shifts[1] / 8, blue = shifts[2] / 8](const uint8_t* row, uint32_t x) {
                const uint8_t* const pixel = row + size_t{bytes} * x;
                return Rgb{pixel[red], pixel[green], pixel[blue]};
              });
  }
}

void read_palette_colours(std::span<const uint8_t> file, const BmpHeader& header, data::RgbImage& image) {
  const auto palette = read_palette(file, header);
  const uint32_t pixels_in_byte = 8 / header.bits;
  read_rows(file, header, image, [&](const uint8_t* row, uint32_t x) {
    const auto shift = 8 - header.bits * (x % pixels_in_byte + 1);
    return palette[(row[x / pixels_in_byte] >> shift) & ((1U << header.bits) - 1)];
  });
}

// Reads the indices of run-length encoded pixels.
class Runs {
 public:
  Runs(std::span<const uint8_t> file, const BmpHeader& header)
      : file_(file), header_(header), offset_(header.offset), indices_(size_t{header.width} * header.height) {}

  // Returns the indices of all pixels in the file's order of rows. Skipped pixels have index 0.
  std::vector<uint8_t> read() {
    while (next_ < indices_.size()) {
      const auto pair = take(2);
      if (pair[0] > 0) {
        repeat(pair[1], std::min<size_t>(pair[0], header_.width - std::min<size_t>(x_, header_.width)));
      } else if (pair[1] == 0) {  // end of the row
        next_ = (next_ + header_.width - 1) / header_.width * header_.width;
        x_ = 0;
      } else if (pair[1] == 1) {  // end of the image
        break;
      } else if (pair[1] == 2) {  // a step to the right and to a later row
        const auto step = take(2);
        next_ += step[0] + size_t{step[1]} * header_.width;
        x_ = next_ % header_.width;
      } else {
        copy(pair[1]);
      }
    }
    return std::move(indices_);
  }

 private:
  bool has_nibbles() const { return header_.compression == kRunLength4; }

  std::span<const uint8_t> take(size_t count) {
    const auto bytes = bytes_at(file_, offset_, count);
    offset_ += count;
    return bytes;
  }

  // Appends one index: all of `byte`, or in an image of 4 bits its upper half for an even `position`, else its lower half.
  void put(uint8_t byte, size_t position) {
    if (next_ >= indices_.size()) return;
    const auto nibble = static_cast<uint8_t>(position % 2 == 0 ? byte >> 4 : byte & 15);
    indices_[next_++] = has_nibbles() ? nibble : byte;
  }
  void repeat(uint8_t byte, size_t count) {
    for (size_t i = 0; i < count; ++i) put(byte, i);
    x_ += count;
  }
  void copy(size_t count) {
    const auto bytes = take(has_nibbles() ? (count + 1) / 2 : count);
    for (size_t i = 0; i < count; ++i) put(bytes[has_nibbles() ? i / 2 : i], i);
    x_ += count;
    offset_ += offset_ % 2;
  }

  std::span<const uint8_t> file_;
  const BmpHeader& header_;
  size_t offset_;
  std::vector<uint8_t> indices_;
  size_t next_ = 0;  // position in indices_
  size_t x_ = 0;
};

// Refuses a file that is too short for its number of pixels: two bytes encode at most 255 pixels, unless they skip pixels. Images with few
// pixels are not checked, because they need little memory.
void check_length(std::span<const uint8_t> file, const BmpHeader& header) {
  constexpr uint64_t kFewPixels = uint64_t{1} << 22;
  const uint64_t num_bytes = file.size() - std::min<size_t>(header.offset, file.size());
  const auto num_pixels = uint64_t{header.width} * header.height;
  if (num_pixels > std::max(kFewPixels, num_bytes / 2 * 255)) throw_too_little_data(header.width, header.height);
}

void read_run_lengths(std::span<const uint8_t> file, const BmpHeader& header, data::RgbImage& image) {
  check_length(file, header);
  const auto palette = read_palette(file, header);
  const auto indices = Runs(file, header).read();
  allocate(header.width, header.height, image);
  uint8_t* rgb = image.pixels.data();
  for (uint32_t y = 0; y < header.height; ++y) {
    const uint8_t* const row = indices.data() + size_t{header.width} * (header.begins_at_top ? y : header.height - 1 - y);
    for (uint32_t x = 0; x < header.width; ++x) rgb = std::ranges::copy(palette[row[x]], rgb).out;
  }
}

}  // namespace

bool is_bmp(std::span<const uint8_t> file) { return has_text(file, 0, "BM"); }

void decode_bmp(std::span<const uint8_t> file, data::RgbImage& image) {
  const auto header = read_header(file);
  const auto bits = header.bits;
  const auto compression = header.compression;
  if ((bits == 16 || bits == 24 || bits == 32) && (compression == kNone || compression == kMasks)) {
    read_direct_colours(file, header, image);
  } else if (bits <= 8 && compression == kNone) {
    read_palette_colours(file, header, image);
  } else if ((bits == 8 && compression == kRunLength8) || (bits == 4 && compression == kRunLength4)) {
    read_run_lengths(file, header, image);
  } else {
    refuse_form(fmt::format("a BMP image of {} bits with compression {}", bits, compression));
  }
}

}  // namespace trainer::images
