#pragma once
// Image files, written by the image module. In a build without OpenCV (TRAINER_WITH_OPENCV=OFF), every call throws UsageError.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace trainer::input {

struct RgbImage {
  int height = 0;
  int width = 0;
  std::vector<uint8_t> pixels;  // [height][width][3], red first
};

// The file name extension selects the format (.png, .jpg …). Throws Error when the file cannot be written.
void write_image_file(const std::filesystem::path& path, const RgbImage& image);

}  // namespace trainer::input
