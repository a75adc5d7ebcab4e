#include "commands/image_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "drawing/draw.h"
#include "reporting/evaluation.h"

namespace trainer::commands {
namespace {

constexpr int kMargin = 4;
// Smaller images are enlarged to at least this many pixels, which two lines of text need.
constexpr int kLeastWidth = 144;
constexpr int kZoom = 2;  // of the text
constexpr int kNumLines = 2;
constexpr int kLineHeight = drawing::kTextHeight * kZoom;

// Draws it in as many lines as there are; what is left out is shown by dots.
void draw_caption(drawing::RgbImage& grid, int top, int left, std::string caption, int width) {
  const auto length = static_cast<size_t>(std::max(1, width / (drawing::kCharacterWidth * kZoom)));
  const size_t most = length * kNumLines;
  if (caption.size() > most) caption.replace(most - std::min<size_t>(most, 2), std::string::npos, "..");
  for (size_t line = 0; line < kNumLines && line * length < caption.size(); ++line) {
    drawing::draw_text(grid, top + static_cast<int>(line) * kLineHeight, left, std::string_view(caption).substr(line * length, length),
                       width, drawing::kBlack, kZoom);
  }
}

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
  const int zoom = (kLeastWidth + width - 1) / width;
  const int cell_height = height * zoom + kNumLines * kLineHeight + kMargin;
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
    draw_caption(grid, top + height * zoom, left, caption, cell_width - kMargin);
  }
  return grid;
}

std::string drawable_class_name(const std::vector<std::string>& class_names, int64_t label) {
  return drawing::drawable(reporting::name_of_class(class_names, label)).value_or(fmt::format("class {}", label));
}

std::vector<ComponentConfig> without_normalize(std::vector<ComponentConfig> transforms) {
  std::erase_if(transforms, [](const auto& transform) { return transform.name == "normalize"; });
  return transforms;
}

}  // namespace trainer::commands
