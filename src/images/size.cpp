#include "images/size.h"

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>

namespace trainer::images {
namespace {

constexpr uint64_t kMaxSide = 65535;
constexpr uint64_t kMaxPixels = uint64_t{1} << 28;

}  // namespace

void check_size(uint64_t width, uint64_t height) {
  if (width == 0 || height == 0) throw std::runtime_error(fmt::format("it is damaged: its size is {} x {} pixels", width, height));
  if (width > kMaxSide || height > kMaxSide || width * height > kMaxPixels) {
    throw std::runtime_error(
        fmt::format("its size of {} x {} pixels is too large: at most {} in each direction, and {} million in all; make it smaller", width,
                    height, kMaxSide, kMaxPixels / 1'000'000));
  }
}

void throw_too_little_data(uint64_t width, uint64_t height) {
  throw std::runtime_error(fmt::format("it is damaged: it has too little data for {} x {} pixels", width, height));
}

void allocate(uint32_t width, uint32_t height, data::RgbImage& image) {
  check_size(width, height);
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  image.pixels.resize(3 * size_t{width} * height);
}

}  // namespace trainer::images
