#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <stdexcept>
#include <streambuf>

#include "data/images/formats.h"
#include "data/images/orientation.h"
#include "data/images/refusal.h"

namespace trainer::images {
namespace {

constexpr int kColour = cv::IMREAD_COLOR | cv::IMREAD_IGNORE_ORIENTATION;

// While an object exists, nothing that its thread writes to std::cerr appears: OpenCV writes some errors there at any log level.
thread_local bool is_quiet = false;
struct Quiet {
  Quiet() { is_quiet = true; }
  ~Quiet() { is_quiet = false; }
};

// Discards what quiet threads write, and forwards the output of all others.
class Filter final : public std::streambuf {
 public:
  explicit Filter(std::streambuf* target) : target_(target) {}

 protected:
  int_type overflow(int_type c) override {
    if (is_quiet || traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    return target_->sputc(traits_type::to_char_type(c));
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override { return is_quiet ? count : target_->sputn(text, count); }
  int sync() override { return is_quiet ? 0 : target_->pubsync(); }

 private:
  std::streambuf* target_;
};

// Returns an empty matrix if OpenCV finds damage.
cv::Mat read_by_opencv(std::span<const uint8_t> file, int flags = kColour) {
  // Never destroyed, because std::cerr is used until the process ends.
  [[maybe_unused]] static const auto* const previous = std::cerr.rdbuf(new Filter(std::cerr.rdbuf()));
  const Quiet quiet;
  try {
    return cv::imdecode(cv::Mat(1, static_cast<int>(file.size()), CV_8UC1, const_cast<uint8_t*>(file.data())), flags);
  } catch (const cv::Exception& error) {
    if (error.code == cv::Error::StsNoMem) throw std::bad_alloc();
    return {};
  }
}

cv::Mat require(cv::Mat pixels) {
  if (pixels.empty()) throw std::runtime_error("it is damaged: its pixels cannot be decoded");
  return pixels;
}

void decode_png_grey_16(std::span<const uint8_t> file, data::ValueImage& image) {
  const auto parts = read_png(file);
  if (!parts.is_grey_16) refuse_no_grey_16();
  const cv::Mat grey = require(read_by_opencv(parts.file, cv::IMREAD_UNCHANGED));
  allocate_values(static_cast<uint64_t>(grey.cols), static_cast<uint64_t>(grey.rows), 1, image);
  image.maximum = 65535;
  for (int y = 0; y < grey.rows; ++y) std::copy_n(grey.ptr<uint16_t>(y), grey.cols, image.values.begin() + ptrdiff_t{y} * grey.cols);
}

// Refuses a file that is truncated, an animation or too large.
void check_webp(std::span<const uint8_t> file) {
  bytes_at(file, 8, little_endian(file, 4, 4));
  if (!has_text(file, 12, "VP8X")) return;  // other kinds of WebP have at most 16384 pixels in each direction
  if ((bytes_at(file, 20, 1)[0] & 0x02) != 0) refuse_form("an animation");
  check_size(uint64_t{little_endian(file, 24, 3)} + 1, uint64_t{little_endian(file, 27, 3)} + 1);
}

constexpr uint32_t kFileHeaderBytes = 14;

bool has_usual_colours(std::span<const uint8_t> file, uint32_t bits, uint32_t compression) {
  enum Compression : uint32_t { kNone = 0, kMasks = 3 };
  if (compression == kMasks) {
    return bits == 32 && little_endian(file, 54, 4) == 0xFF0000 && little_endian(file, 58, 4) == 0xFF00 &&
           little_endian(file, 62, 4) == 0xFF;
  }
  return compression == kNone && (bits == 1 || bits == 4 || bits == 8 || bits == 24 || bits == 32);
}

// Refuses a file whose pixels are missing or too many, or of which OpenCV reads other colours than Pillow.
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

cv::Mat decode_by_opencv(std::span<const uint8_t> file) {
  if (is_png(file)) {
    const auto parts = read_png(file);
    if (parts.is_grey_16) refuse_grey_16();
    return require(read_by_opencv(parts.file));
  }
  if (!is_webp(file) && !has_text(file, 0, "BM")) refuse_format(file);
  is_webp(file) ? check_webp(file) : check_bmp(file);
  return require(read_by_opencv(file));
}

void check_length(std::span<const uint8_t> file) {
  constexpr size_t kMaxBytes = size_t{1} << 30;
  if (file.empty()) throw std::runtime_error("it is empty");
  if (file.size() > kMaxBytes) throw std::runtime_error("the file is larger than 1 GiB; compress it, or make the image smaller");
}

void decode_as_stored(std::span<const uint8_t> file, data::RgbImage& image) {
  if (is_jpeg(file)) return decode_jpeg(file, image);
  if (is_tiff(file)) return decode_tiff(file, image);
  if (is_pnm(file)) return decode_pnm(file, image);
  if (is_npy(file)) refuse_but_in_raw("a NumPy array");
  const cv::Mat bgr = decode_by_opencv(file);
  allocate(static_cast<uint32_t>(bgr.cols), static_cast<uint32_t>(bgr.rows), image);
  cv::Mat rgb(bgr.rows, bgr.cols, CV_8UC3, image.pixels.data());
  cv::cvtColor(bgr, rgb, cv::COLOR_BGR2RGB);
}

void decode_grey_16(std::span<const uint8_t> file, data::ValueImage& image) {
  if (is_png(file)) return decode_png_grey_16(file, image);
  if (is_pnm(file)) return decode_pnm_grey_16(file, image);
  data::ImageTraits traits;
  if (is_tiff(file)) read_tiff_traits(file, traits);
  if (traits.mode != data::ImageMode::kGrey16) refuse_no_grey_16();
  decode_tiff_values(file, image);
}

const char* describe_values(float maximum) {
  return maximum == 0 ? "signed or floating-point values" : maximum < 256 ? "values of 8 bits" : "values of 16 bits";
}

// Refuses float64 values that differ only in digits that float32 lacks.
void check_digits(const data::ValueImage& image) {
  constexpr double kFewestSteps = 16;    // between the least and the greatest value
  constexpr double kArithmetic = 1e-12;  // smaller differences, compared to the values, are the errors of float64 computations
  const auto range = image.greatest - image.least;
  const auto largest = std::max(std::abs(image.least), std::abs(image.greatest));
  if (!std::isfinite(image.error) || range <= kArithmetic * largest || kFewestSteps * image.error <= range) return;
  throw std::runtime_error(
      fmt::format("its float64 values from {} to {} would be rounded to multiples of {:.2g} in float32, with which images are computed; "
                  "subtract {} from the values of all files",
                  image.least, image.greatest, 2 * image.error, image.least));
}

void decode_raw(std::span<const uint8_t> file, const data::ImageDecoding& decoding, data::ValueImage& image) {
  if (is_npy(file)) {
    decode_npy(file, image);
  } else if (is_tiff(file)) {
    decode_tiff_values(file, image);
  } else {
    throw std::runtime_error(
        "it is not a TIFF or .npy file, which dataset.mode: raw requires; convert it to one of these formats, or choose a different mode");
  }
  if (decoding.channels && image.channels != *decoding.channels) {
    throw std::runtime_error(fmt::format(
        "it has {} channel{}, but the first readable image of the data set has {}; save all images with the same number of channels",
        image.channels, image.channels == 1 ? "" : "s", *decoding.channels));
  }
  // Values are divided by the maximum of their type, so images with different types would be scaled differently.
  if (decoding.channels && image.maximum != decoding.maximum) {
    throw std::runtime_error(
        fmt::format("it has {}, but the first readable image of the data set has {}; save all images with the same type of values",
                    describe_values(image.maximum), describe_values(decoding.maximum)));
  }
  // Only of a data set's first images, because some images of a useful data set may be nearly constant.
  if (!decoding.channels) check_digits(image);
  if (!std::ranges::all_of(image.values, [](float value) { return std::isfinite(value); })) {
    throw std::runtime_error("it has values that are not finite (NaN or infinity); replace them, for example by 0");
  }
}

}  // namespace

bool is_webp(std::span<const uint8_t> file) { return has_text(file, 0, "RIFF") && has_text(file, 8, "WEBP"); }

void decode(std::span<const uint8_t> file, bool is_turned_upright, data::RgbImage& image) {
  check_length(file);
  decode_as_stored(file, image);
  // That of a TIFF file is applied by decode_tiff().
  if (is_turned_upright && !is_tiff(file)) turn_upright(read_traits(file).orientation, 3, image, image.pixels);
}

void decode_values(std::span<const uint8_t> file, const data::ImageDecoding& decoding, data::ValueImage& image) {
  check_length(file);
  if (decoding.mode == data::ImageMode::kRaw) return decode_raw(file, decoding, image);
  decode_grey_16(file, image);
  if (decoding.is_turned_upright && !is_tiff(file)) turn_upright(read_traits(file).orientation, 1, image, image.values);
}

}  // namespace trainer::images
