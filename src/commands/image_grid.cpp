#include "commands/image_grid.h"

#include <algorithm>
#include <cmath>

#include "drawing/draw.h"

namespace trainer::commands {
namespace {

constexpr int kMargin = 2;
// Smaller images are enlarged to about this many pixels.
constexpr int kCellWidth = 96;

}  // namespace

drawing::RgbImage draw_image_grid(const std::vector<int64_t>& shape, int64_t count,
                                  const std::function<std::string(int64_t i, float* out)>& read) {
  const auto channels = static_cast<int>(shape[0]);
  const auto height = static_cast<int>(shape[1]);
  const auto width = static_cast<int>(shape[2]);
  std::vector<float> values(static_cast<size_t>(channels * height * width));
  // Grey images have one channel for all three.
  const auto pixel = [&](int y, int x, int c) {
    const int at = (y * width + x) * channels + std::min(c, channels - 1);
    return static_cast<uint8_t>(std::lround(values[static_cast<size_t>(at)] * 255.0F));
  };
  const int zoom = std::max(1, kCellWidth / width);
  const int cell_height = height * zoom + drawing::kTextHeight + kMargin;
  const int cell_width = width * zoom + kMargin;
  const auto columns = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(count))));
  const auto rows = static_cast<int>((count + columns - 1) / columns);
  auto grid = drawing::make_image(rows * cell_height + kMargin, columns * cell_width + kMargin);
  for (int64_t i = 0; i < count; ++i) {
    const int top = kMargin + static_cast<int>(i) / columns * cell_height;
    const int left = kMargin + static_cast<int>(i) % columns * cell_width;
    const auto caption = read(i, values.data());
    for (int y = 0; y < height * zoom; ++y) {
      for (int x = 0; x < width * zoom; ++x) {
        auto* out = &grid.pixels[static_cast<size_t>(((top + y) * grid.width + left + x) * 3)];
        for (int c = 0; c < 3; ++c) out[c] = pixel(y / zoom, x / zoom, c);
      }
    }
    drawing::draw_text(grid, top + height * zoom, left, caption, cell_width - kMargin);
  }
  return grid;
}

std::vector<config::ComponentConfig> without_normalize(std::vector<config::ComponentConfig> transforms) {
  std::erase_if(transforms, [](const auto& transform) { return transform.name == "normalize"; });
  return transforms;
}

}  // namespace trainer::commands
