#include "images/decode.h"

#include <algorithm>
#include <array>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <stdexcept>

#include "images/headers.h"
#include "images/jpeg.h"
#include "images/png.h"
#include "images/quiet.h"
#include "images/size.h"

namespace trainer::images {
namespace {

constexpr int kColour = cv::IMREAD_COLOR | cv::IMREAD_IGNORE_ORIENTATION;

// Empty where OpenCV does not know the format, or finds damage.
cv::Mat read_by_opencv(std::span<const uint8_t> file, int flags = kColour) {
  const QuietErrors quiet;
  try {
    return cv::imdecode(cv::Mat(1, static_cast<int>(file.size()), CV_8UC1, const_cast<uint8_t*>(file.data())), flags);
  } catch (const cv::Exception& error) {
    if (error.code == cv::Error::StsNoMem) throw std::bad_alloc();
    return {};
  }
}

cv::Mat require(cv::Mat pixels, const char* reason = "it is damaged") {
  if (pixels.empty()) throw std::runtime_error(reason);
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

// OpenCV shifts the five or six bits of a colour to the top; Pillow also makes the largest value 255.
void stretch(cv::Mat& bgr, const std::array<uint32_t, 3>& bits) {
  cv::Mat table(1, 256, CV_8UC3);
  for (int value = 0; value < 256; ++value) {
    for (int c = 0; c < 3; ++c) {
      const auto num_bits = bits[static_cast<size_t>(c)];
      const auto stored = static_cast<uint32_t>(value) >> (8 - num_bits);
      table.at<cv::Vec3b>(value)[c] = static_cast<uint8_t>(stored * 255 / ((1U << num_bits) - 1));
    }
  }
  cv::LUT(bgr, table, bgr);
}

cv::Mat decode_bmp(std::span<const uint8_t> file) {
  const auto header = check_bmp(file);
  auto bgr = require(read_by_opencv(file));
  if (header.bits == 16) stretch(bgr, {5, header.green_bits, 5});
  return bgr;
}

cv::Mat decode_webp(std::span<const uint8_t> file) {
  check_webp(file);
  return require(read_by_opencv(file));
}

// Not compared with Pillow in every form; a TIFF file with transparency is darker here, because libtiff multiplies its colours by it.
cv::Mat decode_other(std::span<const uint8_t> file) {
  auto bgr =
      require(read_by_opencv(file), "it is not an image file that this program reads (JPEG, PNG, WebP, BMP, TIFF …), or it is damaged");
  check_size(static_cast<uint64_t>(bgr.cols), static_cast<uint64_t>(bgr.rows));
  return bgr;
}

}  // namespace

void decode(std::span<const uint8_t> file, input::RgbImage& image) {
  constexpr size_t kMaxBytes = size_t{1} << 30;
  if (file.empty()) throw std::runtime_error("it is empty");
  if (file.size() > kMaxBytes) throw std::runtime_error("it is larger than 1 GiB");
  if (is_jpeg(file)) return decode_jpeg(file, image);
  const cv::Mat bgr = is_png(file)    ? decode_png(file)
                      : is_webp(file) ? decode_webp(file)
                      : is_bmp(file)  ? decode_bmp(file)
                                      : decode_other(file);
  image.width = bgr.cols;
  image.height = bgr.rows;
  image.pixels.resize(3 * bgr.total());
  cv::Mat rgb(bgr.rows, bgr.cols, CV_8UC3, image.pixels.data());
  cv::cvtColor(bgr, rgb, cv::COLOR_BGR2RGB);
}

}  // namespace trainer::images
