#include "reporting/plot.h"

#include <fmt/format.h>

#include <algorithm>
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

// Coordinates start at the lower left corner.
void draw_line(std::vector<std::string>& canvas, std::pair<int64_t, int64_t> from, std::pair<int64_t, int64_t> to) {
  const auto steps = std::max({int64_t{1}, std::abs(to.first - from.first), std::abs(to.second - from.second)});
  for (int64_t step = 0; step <= steps; ++step) {
    const auto part = static_cast<double>(step) / static_cast<double>(steps);
    const auto between = [part](int64_t a, int64_t b) { return static_cast<size_t>(a + std::llround(part * static_cast<double>(b - a))); };
    canvas[canvas.size() - 1 - between(from.second, to.second)][between(from.first, to.first)] = '*';
  }
}

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
  std::vector<std::string> canvas(options.height, std::string(columns, ' '));
  std::optional<std::pair<int64_t, int64_t>> last;
  for (const auto& point : scaled) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) {
      last.reset();
      continue;
    }
    const std::pair here{x_range.position(point.x, columns - 1), y_range.position(point.y, options.height - 1)};
    draw_line(canvas, last.value_or(here), here);
    last = here;
  }
  auto text = fmt::format("{}\n", options.y_title);
  for (size_t line = 0; line < options.height; ++line) {
    const auto label = line == 0 ? top : line + 1 == options.height ? bottom : "";
    const auto& dots = canvas[line];
    text += fmt::format("{:>{}} |{}\n", label, indentation - 1, dots.substr(0, dots.find_last_not_of(' ') + 1));
  }
  return text + x_axis(indentation, columns, x_range, options);
}

size_t plot_width(std::FILE* stream) {
  constexpr size_t kMost = 79;
  constexpr size_t kLeast = 20;
  return std::clamp(line_width(stream).value_or(kMost), kLeast, kMost);
}

}  // namespace trainer::reporting
