#pragma once
// Writes image files with OpenCV. In a build without it (TRAINER_WITH_OPENCV=OFF) every call throws a UsageError.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace trainer::input {

struct RgbImage {
  int height = 0;
  int width = 0;
  std::vector<uint8_t> pixels;  // [height][width][3], red first
};

// The file name's extension selects the format (.png, .jpg …). Throws Error when it cannot be written.
void write_image_file(const std::filesystem::path& path, const RgbImage& image);

}  // namespace trainer::input
