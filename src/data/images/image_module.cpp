// The entry point of the image module, a shared library that data/image_file.cpp opens. Only code in this folder includes OpenCV.

#include "data/image_module.h"

#include <opencv2/core/utility.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <stdexcept>

#include "data/images/formats.h"

namespace {

std::vector<uint8_t> encode(const std::string& extension, const uint8_t* pixels, int height, int width, std::optional<int> quality) {
  const cv::Mat rgb(height, width, CV_8UC3, const_cast<uint8_t*>(pixels));
  cv::Mat bgr;
  std::vector<uint8_t> file;
  cv::cvtColor(rgb, bgr, cv::COLOR_RGB2BGR);
  const auto settings = quality ? std::vector<int>{cv::IMWRITE_JPEG_QUALITY, *quality} : std::vector<int>();
  try {
    if (cv::imencode(extension, bgr, file, settings)) return file;
  } catch (const cv::Exception& error) {
    throw std::runtime_error(error.err);
  }
  throw std::runtime_error("it cannot be written as " + extension);
}

std::optional<trainer::data::Box> find_size(std::span<const uint8_t> file, bool is_turned_upright) {
  if (!trainer::images::is_jpeg(file)) return std::nullopt;
  if (is_turned_upright && trainer::images::read_traits(file).orientation != 1) return std::nullopt;
  return trainer::images::find_jpeg_size(file);
}

void resize_linear(const uint8_t* pixels, int height, int width, int new_height, int new_width, uint8_t* out) {
  cv::Mat resized(new_height, new_width, CV_8UC3, out);
  cv::resize(cv::Mat(height, width, CV_8UC3, const_cast<uint8_t*>(pixels)), resized, resized.size(), 0, 0, cv::INTER_LINEAR);
}

void draw_text(trainer::data::RgbImage& image, const trainer::data::Box& box, const std::string& text) {
  cv::Mat whole(image.height, image.width, CV_8UC3, image.pixels.data());
  cv::Mat line = whole(cv::Rect(box.left, box.top, box.width, box.height));
  cv::putText(line, text, {0, box.height * 3 / 4}, cv::FONT_HERSHEY_SIMPLEX, box.height / 48.0, {0, 0, 0}, 1, cv::LINE_AA);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const trainer::data::ImageModule* trainer_image_module() {
  static constexpr trainer::data::ImageModule kModule{&encode,
                                                      &trainer::images::decode,
                                                      &trainer::images::decode_values,
                                                      &find_size,
                                                      &trainer::images::decode_jpeg_part,
                                                      &trainer::images::read_traits,
                                                      &resize_linear,
                                                      &draw_text};
  cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
  // More threads would not help, because each of the caller's threads processes its own image.
  cv::setNumThreads(1);
  return &kModule;
}
