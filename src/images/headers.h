#pragma once
// What is checked of a WebP and of a BMP file before OpenCV reads it. The functions throw std::runtime_error with the reason.

#include <cstdint>
#include <span>

namespace trainer::images {

bool is_webp(std::span<const uint8_t> file);
void check_webp(std::span<const uint8_t> file);

bool is_bmp(std::span<const uint8_t> file);

struct BmpHeader {
  uint32_t offset = 0;  // of the pixels
  uint32_t width = 0;
  uint32_t height = 0;
  uint32_t bits = 0;        // of a pixel
  uint32_t green_bits = 0;  // where `bits` is 16
};
BmpHeader check_bmp(std::span<const uint8_t> file);

}  // namespace trainer::images
