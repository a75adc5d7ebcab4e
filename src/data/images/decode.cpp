#include "data/images/decode.h"

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <stdexcept>

#include "data/images/formats.h"
#include "data/images/refusal.h"
#include "data/images/tiff.h"
#include "data/images/traits.h"

namespace trainer::images {
namespace {

constexpr int kColour = cv::IMREAD_COLOR | cv::IMREAD_IGNORE_ORIENTATION;

// Empty where OpenCV finds damage.
cv::Mat read_by_opencv(std::span<const uint8_t> file, int flags = kColour) {
  const QuietErrors quiet;
  try {
    return cv::imdecode(cv::Mat(1, static_cast<int>(file.size()), CV_8UC1, const_cast<uint8_t*>(file.data())), flags);
  } catch (const cv::Exception& error) {
    if (error.code == cv::Error::StsNoMem) throw std::bad_alloc();
    return {};
  }
}

cv::Mat require(cv::Mat pixels) {
  if (pixels.empty()) throw std::runtime_error("it is damaged");
  return pixels;
}

// Pillow's conversion of 16 bits in one channel: larger values are white.
cv::Mat clip(const cv::Mat& grey) {
  cv::Mat clipped;
  grey.convertTo(clipped, CV_8U);
  cv::Mat bgr;
  cv::cvtColor(clipped, bgr, cv::COLOR_GRAY2BGR);
  return bgr;
}

cv::Mat decode_png(std::span<const uint8_t> file) {
  const auto parts = read_png(file);
  if (!parts.is_grey_16) return require(read_by_opencv(parts.file));
  return clip(require(read_by_opencv(parts.file, cv::IMREAD_UNCHANGED)));
}

cv::Mat decode_webp(std::span<const uint8_t> file) {
  check_webp(file);
  return require(read_by_opencv(file));
}

}  // namespace

void decode(std::span<const uint8_t> file, data::RgbImage& image) {
  constexpr size_t kMaxBytes = size_t{1} << 30;
  if (file.empty()) throw std::runtime_error("it is empty");
  if (file.size() > kMaxBytes) throw std::runtime_error("its file is larger than 1 GiB; save it compressed, or make it smaller");
  if (is_jpeg(file)) return decode_jpeg(file, image);
  if (is_bmp(file)) return decode_bmp(file, image);
  if (is_tiff(file)) return decode_tiff(file, image);
  if (is_pnm(file)) return decode_pnm(file, image);
  if (!is_png(file) && !is_webp(file)) refuse_format(file);
  const cv::Mat bgr = is_png(file) ? decode_png(file) : decode_webp(file);
  allocate(static_cast<uint32_t>(bgr.cols), static_cast<uint32_t>(bgr.rows), image);
  cv::Mat rgb(bgr.rows, bgr.cols, CV_8UC3, image.pixels.data());
  cv::cvtColor(bgr, rgb, cv::COLOR_BGR2RGB);
}

bool is_webp(std::span<const uint8_t> file) { return has_text(file, 0, "RIFF") && has_text(file, 8, "WEBP"); }

void check_webp(std::span<const uint8_t> file) {
  bytes_at(file, 8, little_endian(file, 4, 4));
  if (!has_text(file, 12, "VP8X")) return;  // the other forms have no more than 16384 pixels in a direction
  if ((bytes_at(file, 20, 1)[0] & 0x02) != 0) refuse_form("an animation");
  check_size(uint64_t{little_endian(file, 24, 3)} + 1, uint64_t{little_endian(file, 27, 3)} + 1);
}

}  // namespace trainer::images
