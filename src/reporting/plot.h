#pragma once
// A curve as lines of text, for a terminal.

#include <cstddef>
#include <cstdio>
#include <optional>
#include <span>
#include <string>

namespace trainer::reporting {

struct PlotPoint {
  double x = 0;
  double y = 0;
};

struct PlotOptions {
  std::string x_title, y_title;  // ASCII
  size_t width = 79;             // columns of the longest line, with the labels of the axes; 20 or more
  size_t height = 10;            // lines of the curve itself; 2 or more
  bool unicode = true;           // draws with braille characters, eight dots each; otherwise with one * for each character
  bool log_x = false;            // the x axis is logarithmic; points with x <= 0 are left out
  std::optional<double> mark_x;  // marked with ^ on the axis, if it lies within
};

// The points, which are in ascending order of x, joined by straight lines. Points that are not finite are left out, and the curve is
// interrupted there. Each line ends with a line break; empty without a point to draw.
std::string plot(std::span<const PlotPoint> points, const PlotOptions& options);

// The width to use for `stream`: that of its terminal, at most 79; 79 elsewhere.
size_t plot_width(std::FILE* stream);

}  // namespace trainer::reporting
