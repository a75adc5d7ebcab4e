#include "images/size.h"

#include <fmt/format.h>

#include <stdexcept>

namespace trainer::images {
namespace {

constexpr uint64_t kMaxSide = 65535;
constexpr uint64_t kMaxPixels = uint64_t{1} << 28;

}  // namespace

void check_size(uint64_t width, uint64_t height) {
  if (width == 0 || height == 0) throw std::runtime_error(fmt::format("it is damaged: its size is {} x {} pixels", width, height));
  if (width > kMaxSide || height > kMaxSide || width * height > kMaxPixels) {
    throw std::runtime_error(fmt::format("its size of {} x {} pixels is too large: at most {} in each direction, and {} million in all",
                                         width, height, kMaxSide, kMaxPixels / 1'000'000));
  }
}

}  // namespace trainer::images
