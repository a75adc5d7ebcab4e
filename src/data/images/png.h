#pragma once
// What is checked of a PNG file before OpenCV reads it, and what OpenCV gets of it.

#include <cstdint>
#include <span>
#include <vector>

namespace trainer::images {

bool is_png(std::span<const uint8_t> file);

struct PngParts {
  bool is_grey_16 = false;  // one channel of 16 bits
  // A PNG file with only the parts that define the colours. About others, OpenCV's libpng writes warnings to stderr.
  std::vector<uint8_t> file;
};

// Throws std::runtime_error with the reason: for a file that is cut off, a wrong checksum, an image too large.
PngParts read_png(std::span<const uint8_t> file);

}  // namespace trainer::images
