#pragma once
// The largest image that is read.

#include <cstdint>

namespace trainer::images {

// Throws std::runtime_error for an image without pixels, or one too large. For use before memory is allocated.
void check_size(uint64_t width, uint64_t height);

}  // namespace trainer::images
