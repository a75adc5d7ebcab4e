#pragma once
// What is checked of a WebP file before OpenCV reads it.

#include <cstdint>
#include <span>

namespace trainer::images {

bool is_webp(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason why the file is not read.
void check_webp(std::span<const uint8_t> file);

}  // namespace trainer::images
