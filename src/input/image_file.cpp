#include "input/image_file.h"

#include "base/error.h"
#include "base/file.h"

#if TRAINER_WITH_OPENCV
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#endif

namespace trainer::input {

#if TRAINER_WITH_OPENCV

void write_image_file(const std::filesystem::path& path, const RgbImage& image) {
  if (const auto refusal = describe_irregular(path); !refusal.empty()) throw Error("cannot write " + path.string() + ": " + refusal);
  const cv::Mat rgb(image.height, image.width, CV_8UC3, const_cast<uint8_t*>(image.pixels.data()));
  cv::Mat bgr;
  cv::cvtColor(rgb, bgr, cv::COLOR_RGB2BGR);
  try {
    if (cv::imwrite(path.string(), bgr)) return;
  } catch (const cv::Exception& error) {
    throw UsageError("cannot write " + path.string() + ": " + error.err + "; use a name that ends in .png or .jpg");
  }
  throw Error("cannot write " + path.string() + "; does the folder exist, and may this user write there?");
}

#else

void write_image_file(const std::filesystem::path& path, const RgbImage&) {
  throw UsageError("cannot write " + path.string() + ": this trainer was built without OpenCV; build with -DTRAINER_WITH_OPENCV=ON");
}

#endif

}  // namespace trainer::input
