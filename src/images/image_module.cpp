// The image module's entry. It is a shared library that input/image_file.cpp opens; its folder is the only code that includes OpenCV.

#include "input/image_module.h"

#include <new>
#include <opencv2/core/utility.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <stdexcept>

#include "images/decode.h"

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

void draw_text(trainer::input::RgbImage& image, int top, int left, const std::string& text, int width) {
  constexpr auto kFont = cv::FONT_HERSHEY_SIMPLEX;
  constexpr double kScale = 0.35;
  constexpr int kBaseline = 10;
  cv::Mat rgb(image.height, image.width, CV_8UC3, image.pixels.data());
  const cv::Rect line = cv::Rect(left, top, width, trainer::input::kTextHeight) & cv::Rect(0, 0, image.width, image.height);
  cv::Mat part = rgb(line);
  cv::putText(part, text, cv::Point(0, kBaseline), kFont, kScale, cv::Scalar(0, 0, 0), /*thickness=*/1, cv::LINE_AA);
}

bool decode(std::span<const uint8_t> file, trainer::input::RgbImage& image, std::string& refusal) {
  try {
    trainer::images::decode(file, image);
    return true;
  } catch (const std::bad_alloc&) {
    refusal = "there is too little memory for its pixels";
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  return false;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const trainer::input::ImageModule* trainer_image_module() {
  static constexpr trainer::input::ImageModule kModule{&write, &decode, &draw_text};
  cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
  // The caller's threads each have their own image.
  cv::setNumThreads(1);
  return &kModule;
}
