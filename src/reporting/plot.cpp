#include "reporting/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "reporting/values.h"

namespace trainer::reporting {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Maps a value of the range to a whole number from 0 to `last`.
  int64_t position(double value, size_t last) const {
    return high > low ? std::llround((value - low) / (high - low) * static_cast<double>(last)) : 0;
  }
};

// A grid of characters; each character has dots that can be set.
class Canvas {
 public:
  Canvas(size_t columns, size_t lines, bool unicode)
      : columns_(columns), lines_(lines), unicode_(unicode), cells_(columns * lines, uint8_t{0}) {}

  size_t width() const { return columns_ * dots_across(); }
  size_t height() const { return lines_ * dots_down(); }

  // Coordinates start at the lower left corner.
  void set(int64_t x, int64_t y) {
    const auto column = static_cast<size_t>(x);
    const auto row = height() - 1 - static_cast<size_t>(y);
    // The bits of the braille characters, by row and column.
    constexpr std::array<std::array<uint8_t, 2>, 4> kBits = {{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    cells_[row / dots_down() * columns_ + column / dots_across()] |= unicode_ ? kBits[row % 4][column % 2] : uint8_t{1};
  }

  void draw_line(std::pair<int64_t, int64_t> from, std::pair<int64_t, int64_t> to) {
    const auto steps = std::max({int64_t{1}, std::abs(to.first - from.first), std::abs(to.second - from.second)});
    for (int64_t step = 0; step <= steps; ++step) {
      const auto part = static_cast<double>(step) / static_cast<double>(steps);
      const auto between = [part](int64_t a, int64_t b) { return a + std::llround(part * static_cast<double>(b - a)); };
      set(between(from.first, to.first), between(from.second, to.second));
    }
  }

  std::string line(size_t number) const {
    std::string text;
    for (size_t column = 0; column < columns_; ++column) {
      const auto bits = cells_[number * columns_ + column];
      if (bits == 0) {
        text += ' ';
      } else if (unicode_) {
        // U+2800 + bits in UTF-8.
        text += {static_cast<char>(0xE2), static_cast<char>(0xA0 | bits >> 6), static_cast<char>(0x80 | (bits & 0x3F))};
      } else {
        text += '*';
      }
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }

 private:
  size_t dots_across() const { return unicode_ ? 2 : 1; }
  size_t dots_down() const { return unicode_ ? 4 : 1; }

  size_t columns_, lines_;
  bool unicode_;
  std::vector<uint8_t> cells_;
};

std::string label_of(double value) { return fmt::format("{:.3g}", value); }

// The lines below the curve: the axis, and the labels at its ends with the title between them.
std::string x_axis(size_t indentation, size_t columns, const Range& range, const PlotOptions& options) {
  std::string axis(columns, '-');
  const auto scaled = [&](double x) { return options.log_x ? std::log10(x) : x; };
  if (options.mark_x && scaled(*options.mark_x) >= range.low && scaled(*options.mark_x) <= range.high) {
    axis[static_cast<size_t>(range.position(scaled(*options.mark_x), columns - 1))] = '^';
  }
  const auto value = [&](double x) { return fmt::format("{:g}", options.log_x ? std::pow(10, x) : x); };
  const auto left = value(range.low);
  const auto right = value(range.high);
  std::string labels = left;
  const auto labels_size = left.size() + right.size();
  const auto room = columns > labels_size ? columns - labels_size : 1;
  labels += room > options.x_title.size() + 1 ? fmt::format("{:^{}}", options.x_title, room) : std::string(room, ' ');
  labels += right;
  return fmt::format("{:{}}+{}\n{:{}} {}\n", "", indentation, axis, "", indentation, labels);
}

}  // namespace

std::string plot(std::span<const PlotPoint> points, const PlotOptions& options) {
  std::vector<PlotPoint> scaled;
  Range x_range, y_range;
  for (const auto& point : points) {
    const PlotPoint each{.x = options.log_x ? std::log10(point.x) : point.x, .y = point.y};
    scaled.push_back(each);
    if (!std::isfinite(each.x) || !std::isfinite(each.y)) continue;
    x_range.include(each.x);
    y_range.include(each.y);
  }
  if (x_range.low > x_range.high) return "";
  const auto top = label_of(y_range.high);
  const auto bottom = label_of(y_range.low);
  const auto indentation = std::max(top.size(), bottom.size()) + 1;
  const auto columns = options.width - indentation - 1;
  Canvas canvas(columns, options.height, options.unicode);
  bool continues = false;
  std::pair<int64_t, int64_t> last;
  for (const auto& point : scaled) {
    const bool is_finite = std::isfinite(point.x) && std::isfinite(point.y);
    if (is_finite) {
      const std::pair here{x_range.position(point.x, canvas.width() - 1), y_range.position(point.y, canvas.height() - 1)};
      canvas.draw_line(continues ? last : here, here);
      last = here;
    }
    continues = is_finite;
  }
  auto text = fmt::format("{}\n", options.y_title);
  for (size_t line = 0; line < options.height; ++line) {
    const auto label = line == 0 ? top : line + 1 == options.height ? bottom : "";
    text += fmt::format("{:>{}} |{}\n", label, indentation - 1, canvas.line(line));
  }
  return text + x_axis(indentation, columns, x_range, options);
}

size_t plot_width(std::FILE* stream) {
  constexpr size_t kMost = 79;
  constexpr size_t kLeast = 20;
  return std::clamp(line_width(stream).value_or(kMost), kLeast, kMost);
}

}  // namespace trainer::reporting
