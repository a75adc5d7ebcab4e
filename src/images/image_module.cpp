// The image module's entry. It is a shared library that input/image_file.cpp opens; its folder is the only code that includes OpenCV.

#include "input/image_module.h"

#include <new>
#include <opencv2/core/utility.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <stdexcept>

#include "images/decode.h"
#include "images/jpeg.h"

namespace {

bool write(const std::string& path, const trainer::input::RgbImage& image, std::string& refusal) {
  const cv::Mat rgb(image.height, image.width, CV_8UC3, const_cast<uint8_t*>(image.pixels.data()));
  cv::Mat bgr;
  cv::cvtColor(rgb, bgr, cv::COLOR_RGB2BGR);
  try {
    return cv::imwrite(path, bgr);
  } catch (const cv::Exception& error) {
    refusal = error.err;
    return false;
  }
}

// Calls `read`; its exceptions become a refusal.
template <class Read>
bool try_to(const Read& read, std::string& refusal) {
  try {
    read();
    return true;
  } catch (const std::bad_alloc&) {
    refusal = "there is too little memory for its pixels";
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  return false;
}

bool decode(std::span<const uint8_t> file, trainer::input::RgbImage& image, std::string& refusal) {
  return try_to([&] { trainer::images::decode(file, image); }, refusal);
}

bool find_size(std::span<const uint8_t> file, std::optional<trainer::input::Box>& size, std::string& refusal) {
  return try_to(
      [&] {
        if (trainer::images::is_jpeg(file)) size = trainer::images::find_jpeg_size(file);
      },
      refusal);
}

bool decode_part(std::span<const uint8_t> file, trainer::input::Box& part, trainer::input::RgbImage& image, std::string& refusal) {
  return try_to([&] { part = trainer::images::decode_jpeg_part(file, part, image); }, refusal);
}

bool encode_jpeg(const uint8_t* pixels, int height, int width, int quality, std::vector<uint8_t>& file, std::string& refusal) {
  return try_to(
      [&] {
        const cv::Mat rgb(height, width, CV_8UC3, const_cast<uint8_t*>(pixels));
        cv::Mat bgr;
        cv::cvtColor(rgb, bgr, cv::COLOR_RGB2BGR);
        if (!cv::imencode(".jpg", bgr, file, {cv::IMWRITE_JPEG_QUALITY, quality})) throw std::runtime_error("it cannot be written as JPEG");
      },
      refusal);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const trainer::input::ImageModule* trainer_image_module() {
  static constexpr trainer::input::ImageModule kModule{&write, &decode, &find_size, &decode_part, &encode_jpeg};
  cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
  // The caller's threads each have their own image.
  cv::setNumThreads(1);
  return &kModule;
}
