#include "data/images/traits.h"

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>

#include "data/images/decode.h"
#include "data/images/formats.h"
#include "data/images/refusal.h"

namespace trainer::images {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr uint32_t kBitsPerSample = 258;
constexpr uint32_t kPhotometric = 262;
constexpr uint32_t kOrientation = 274;
constexpr uint32_t kSamplesPerPixel = 277;
constexpr uint32_t kSampleFormat = 339;
constexpr uint32_t kZeroIsBlack = 1;  // photometric
constexpr uint32_t kUnsigned = 1;     // sample format
constexpr size_t kExifBytes = 6;      // of "Exif\0\0", after which a TIFF file follows

// BigTIFF files have another structure.
bool is_classic_tiff(Bytes file) { return has_text(file, 0, {"II*\0", 4}) || has_text(file, 0, {"MM\0*", 4}); }

// The values of the first image in a TIFF file, or in the TIFF file of which EXIF data consist.
void read_tiff(Bytes file, data::ImageTraits& traits, bool is_exif) {
  if (!is_classic_tiff(file)) return;
  const bool is_big_endian = file[0] == 'M';
  const auto integer = [&](size_t offset, size_t count) {
    if (!is_big_endian) return little_endian(file, offset, count);
    uint32_t value = 0;
    for (const uint32_t byte : bytes_at(file, offset, count)) value = value << 8 | byte;
    return value;
  };
  uint32_t photometric = 0, format = kUnsigned, samples = 1;
  const size_t table = integer(4, 4);
  const auto num_entries = integer(table, 2);
  for (size_t i = 0; i < num_entries; ++i) {
    constexpr size_t kEntryBytes = 12;
    const size_t entry = table + 2 + kEntryBytes * i;
    const auto tag = integer(entry, 2);
    // That of a TIFF file itself is applied when it is decoded.
    if (tag == kOrientation && is_exif) traits.orientation = static_cast<int>(integer(entry + 8, 2));
    if (is_exif) continue;
    // More than two values lie elsewhere.
    const auto first_value = [&] { return integer(integer(entry + 4, 4) > 2 ? integer(entry + 8, 4) : entry + 8, 2); };
    if (tag == kBitsPerSample) traits.bits = static_cast<int>(first_value());
    if (tag == kPhotometric) photometric = first_value();
    if (tag == kSamplesPerPixel) samples = first_value();
    if (tag == kSampleFormat) format = first_value();
  }
  if (is_exif) return;
  const bool is_grey = photometric == kZeroIsBlack;
  const bool has_numbers = format != kUnsigned || traits.bits > 16;
  traits.channels = static_cast<int>(samples);
  if (has_numbers || (is_grey && samples > (traits.bits == 16 ? 1 : 2))) {
    traits.mode = data::ImageMode::kRaw;
  } else if (is_grey && traits.bits == 16) {
    traits.mode = data::ImageMode::kGrey16;
  }
}

void read_exif(Bytes data, data::ImageTraits& traits) {
  const bool has_name = has_text(data, 0, {"Exif\0\0", kExifBytes});
  read_tiff(has_name ? data.subspan(kExifBytes) : data, traits, /*is_exif=*/true);
}

void read_jpeg(Bytes file, data::ImageTraits& traits) {
  constexpr uint8_t kApp1 = 0xE1;
  constexpr uint8_t kStartOfScan = 0xDA;
  size_t at = 2;
  while (bytes_at(file, at, 2)[0] == 0xFF && file[at + 1] != kStartOfScan) {
    if (file[at + 1] == 0xFF) {  // filling
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

void read_png_chunks(Bytes file, data::ImageTraits& traits) {
  size_t at = 8;
  while (!has_text(file, at + 4, "IEND")) {
    const size_t num_bytes = big_endian(file, at);
    const auto data = bytes_at(file, at + 8, num_bytes);
    if (has_text(file, at + 4, "IHDR")) {
      traits.bits = bytes_at(data, 8, 1)[0];
      const bool is_grey = bytes_at(data, 9, 1)[0] == 0;
      if (is_grey && traits.bits == 16) traits.mode = data::ImageMode::kGrey16;
    }
    if (has_text(file, at + 4, "eXIf")) read_exif(data, traits);
    at += 12 + num_bytes;
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
    if (is_png(file)) read_png_chunks(file, traits);
    if (is_webp(file)) read_webp(file, traits);
    if (is_classic_tiff(file)) read_tiff(file, traits, /*is_exif=*/false);
    if (is_pnm(file)) read_pnm_traits(file, traits);
    if (is_npy(file)) read_npy_traits(file, traits);
  } catch (const std::runtime_error&) {
    // The file ends too early, which decoding it reports.
  }
  return traits;
}

namespace {

constexpr uint64_t kMaxSide = 65535;
constexpr uint64_t kMaxPixels = uint64_t{1} << 28;

}  // namespace

void check_size(uint64_t width, uint64_t height) {
  if (width == 0 || height == 0) throw std::runtime_error(fmt::format("it is damaged: its size is {} x {} pixels", width, height));
  if (width > kMaxSide || height > kMaxSide || width * height > kMaxPixels) {
    throw std::runtime_error(
        fmt::format("its size of {} x {} pixels is too large: at most {} in each direction, and {} million in all; make it smaller", width,
                    height, kMaxSide, kMaxPixels / 1'000'000));
  }
}

void throw_too_little_data(uint64_t width, uint64_t height) {
  throw std::runtime_error(fmt::format("it is damaged: it has too little data for {} x {} pixels", width, height));
}

void allocate(uint32_t width, uint32_t height, data::RgbImage& image) {
  check_size(width, height);
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  image.pixels.resize(3 * size_t{width} * height);
}

void allocate_values(uint64_t width, uint64_t height, uint64_t channels, data::ValueImage& image) {
  check_size(width, height);
  if (channels > kMaxPixels / (width * height)) {
    throw std::runtime_error(
        fmt::format("its {} channels of {} x {} pixels are too many values: at most {} million in all; make it smaller", channels, width,
                    height, kMaxPixels / 1'000'000));
  }
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  image.channels = static_cast<int>(channels);
  image.values.resize(channels * width * height);
}

}  // namespace trainer::images
