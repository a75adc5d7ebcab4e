// The image module: the only code that includes OpenCV. It is a shared library that input/image_file.cpp opens.

#include "input/image_module.h"

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

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

}  // namespace

extern "C" __attribute__((visibility("default"))) const trainer::input::ImageModule* trainer_image_module() {
  static constexpr trainer::input::ImageModule kModule{&write};
  return &kModule;
}
