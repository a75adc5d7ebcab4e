// The entry point of the image module, a shared library that data/image_file.cpp opens. Only code in this folder includes OpenCV.

#include "data/image_module.h"

#include <new>
#include <opencv2/core/utility.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <stdexcept>

#include "data/images/decode.h"
#include "data/images/formats.h"
#include "data/images/traits.h"

namespace {

// Throws cv::Exception or std::runtime_error.
std::vector<uint8_t> encoded(const std::string& extension, const uint8_t* pixels, int height, int width, const std::vector<int>& settings) {
  const cv::Mat rgb(height, width, CV_8UC3, const_cast<uint8_t*>(pixels));
  cv::Mat bgr;
  std::vector<uint8_t> file;
  cv::cvtColor(rgb, bgr, cv::COLOR_RGB2BGR);
  if (!cv::imencode(extension, bgr, file, settings)) throw std::runtime_error("it cannot be written as " + extension);
  return file;
}

bool encode(const std::string& extension, const trainer::data::RgbImage& image, std::vector<uint8_t>& file, std::string& refusal) {
  try {
    file = encoded(extension, image.pixels.data(), image.height, image.width, {});
    return true;
  } catch (const cv::Exception& error) {
    refusal = error.err;
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  return false;
}

// Calls `read` and converts its exceptions to a refusal.
template <class Read>
bool try_to(const Read& read, std::string& refusal) {
  try {
    read();
    return true;
  } catch (const std::bad_alloc&) {
    refusal = "there is not enough memory for its pixels";
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  return false;
}

bool decode(std::span<const uint8_t> file, bool is_turned_upright, trainer::data::RgbImage& image, std::string& refusal) {
  return try_to([&] { trainer::images::decode(file, is_turned_upright, image); }, refusal);
}

bool decode_values(std::span<const uint8_t> file, const trainer::data::ImageDecoding& decoding, trainer::data::ValueImage& image,
                   std::string& refusal) {
  return try_to([&] { trainer::images::decode_values(file, decoding, image); }, refusal);
}

bool find_size(std::span<const uint8_t> file, bool is_turned_upright, std::optional<trainer::data::Box>& size, std::string& refusal) {
  return try_to(
      [&] {
        if (!trainer::images::is_jpeg(file)) return;
        if (is_turned_upright && trainer::images::read_traits(file).orientation != 1) return;
        size = trainer::images::find_jpeg_size(file);
      },
      refusal);
}

bool decode_part(std::span<const uint8_t> file, trainer::data::Box& part, trainer::data::RgbImage& image, std::string& refusal) {
  return try_to([&] { part = trainer::images::decode_jpeg_part(file, part, image); }, refusal);
}

bool encode_jpeg(const uint8_t* pixels, int height, int width, int quality, std::vector<uint8_t>& file, std::string& refusal) {
  return try_to([&] { file = encoded(".jpg", pixels, height, width, {cv::IMWRITE_JPEG_QUALITY, quality}); }, refusal);
}

bool resize_linear(const uint8_t* pixels, int height, int width, int new_height, int new_width, uint8_t* out, std::string& refusal) {
  return try_to(
      [&] {
        cv::Mat resized(new_height, new_width, CV_8UC3, out);
        cv::resize(cv::Mat(height, width, CV_8UC3, const_cast<uint8_t*>(pixels)), resized, resized.size(), 0, 0, cv::INTER_LINEAR);
      },
      refusal);
}

bool draw_text(trainer::data::RgbImage& image, const trainer::data::Box& box, const std::string& text, std::string& refusal) {
  return try_to(
      [&] {
        cv::Mat whole(image.height, image.width, CV_8UC3, image.pixels.data());
        cv::Mat line = whole(cv::Rect(box.left, box.top, box.width, box.height));
        cv::putText(line, text, {0, box.height * 3 / 4}, cv::FONT_HERSHEY_SIMPLEX, box.height / 48.0, {0, 0, 0}, 1, cv::LINE_AA);
      },
      refusal);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const trainer::data::ImageModule* trainer_image_module() {
  static constexpr trainer::data::ImageModule kModule{
      &encode, &decode, &decode_values, &find_size, &decode_part, &encode_jpeg, &trainer::images::read_traits, &resize_linear, &draw_text};
  cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
  // More threads would not help, because each of the caller's threads processes its own image.
  cv::setNumThreads(1);
  return &kModule;
}
