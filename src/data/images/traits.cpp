#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>

#include "data/images/formats.h"
#include "data/images/refusal.h"

namespace trainer::images {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr uint64_t kMaxSide = 65535;
constexpr uint64_t kMaxPixels = uint64_t{1} << 28;

constexpr uint32_t kOrientation = 274;
constexpr size_t kExifBytes = 6;  // size of "Exif\0\0", which precedes a TIFF file

// Reads the orientation from EXIF data, which are a TIFF file, possibly after a name.
void read_exif(Bytes file, data::ImageTraits& traits) {
  if (has_text(file, 0, {"Exif\0\0", kExifBytes})) file = file.subspan(kExifBytes);
  const bool is_big_endian = has_text(file, 0, {"MM\0*", 4});
  if (!is_big_endian && !has_text(file, 0, {"II*\0", 4})) return;
  const auto integer = [&](size_t offset, size_t count) {
    return is_big_endian ? big_endian(file, offset, count) : little_endian(file, offset, count);
  };
  const size_t table = integer(4, 4);
  const auto num_entries = integer(table, 2);
  for (size_t i = 0; i < num_entries; ++i) {
    constexpr size_t kEntryBytes = 12;
    const size_t entry = table + 2 + kEntryBytes * i;
    if (integer(entry, 2) == kOrientation) traits.orientation = static_cast<int>(integer(entry + 8, 2));
  }
}

void read_jpeg(Bytes file, data::ImageTraits& traits) {
  constexpr uint8_t kApp1 = 0xE1;
  constexpr uint8_t kStartOfScan = 0xDA;
  size_t at = 2;
  while (bytes_at(file, at, 2)[0] == 0xFF && file[at + 1] != kStartOfScan) {
    if (file[at + 1] == 0xFF) {  // fill byte
      ++at;
      continue;
    }
    const auto length = bytes_at(file, at + 2, 2);
    const size_t num_bytes = size_t{length[0]} << 8 | length[1];
    if (num_bytes < 2) return;
    const auto data = bytes_at(file, at + 4, num_bytes - 2);
    if (file[at + 1] == kApp1 && has_text(data, 0, "Exif")) return read_exif(data, traits);
    at += 2 + num_bytes;
  }
}

void read_webp(Bytes file, data::ImageTraits& traits) {
  size_t at = 12;
  while (at < file.size()) {
    const size_t num_bytes = little_endian(file, at + 4, 4);
    const auto data = bytes_at(file, at + 8, num_bytes);
    if (has_text(file, at, "EXIF")) return read_exif(data, traits);
    at += 8 + num_bytes + num_bytes % 2;
  }
}

}  // namespace

data::ImageTraits read_traits(std::span<const uint8_t> file) {
  data::ImageTraits traits;
  try {
    if (is_jpeg(file)) read_jpeg(file, traits);
    if (is_png(file)) read_exif(read_png_traits(file, traits), traits);
    if (is_webp(file)) read_webp(file, traits);
    if (is_tiff(file)) {
      read_tiff_traits(file, traits);
      traits.pages = count_pages(file);
    }
    if (is_pnm(file)) read_pnm_traits(file, traits);
    if (is_npy(file)) read_npy_traits(file, traits);
  } catch (const std::runtime_error&) {
    // The file is damaged; decoding it reports the error.
  }
  return traits;
}

void check_size(uint64_t width, uint64_t height) {
  if (width == 0 || height == 0) throw std::runtime_error(fmt::format("it is damaged: its size is {} x {} pixels", width, height));
  if (width > kMaxSide || height > kMaxSide || width * height > kMaxPixels) {
    throw std::runtime_error(fmt::format(
        "its size of {} x {} pixels is too large: at most {} in each direction and {} million in total are supported; make it smaller",
        width, height, kMaxSide, kMaxPixels / 1'000'000));
  }
}

void throw_too_little_data(uint64_t width, uint64_t height) {
  throw std::runtime_error(fmt::format("it is damaged: it does not have enough data for {} x {} pixels", width, height));
}

void allocate(uint32_t width, uint32_t height, data::RgbImage& image) {
  check_size(width, height);
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  image.pixels.resize(3 * size_t{width} * height);
}

void check_num_values(uint64_t width, uint64_t height, uint64_t channels) {
  check_size(width, height);
  if (channels == 0 || channels > kMaxPixels / (width * height)) {
    throw std::runtime_error(
        fmt::format("it has {} channels of {} x {} pixels, but 1 to {} million values in total are supported; make it smaller", channels,
                    width, height, kMaxPixels / 1'000'000));
  }
}

void allocate_values(uint64_t width, uint64_t height, uint64_t channels, data::ValueImage& image) {
  check_num_values(width, height, channels);
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  image.channels = static_cast<int>(channels);
  image.values.resize(channels * width * height);
}

}  // namespace trainer::images
