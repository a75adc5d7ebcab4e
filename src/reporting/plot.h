#pragma once
// Draws a curve as lines of text, for a terminal.

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
  bool log_x = false;            // the x axis is logarithmic; points with x <= 0 are skipped
  std::optional<double> mark_x;  // marked with ^ on the x axis, if the axis includes it
};

// Joins the points, which must be in ascending order of x, by straight lines. Points that are not finite are skipped and interrupt the
// curve. Each line ends with a line break. Returns an empty string if there is no point to draw.
std::string plot(std::span<const PlotPoint> points, const PlotOptions& options);

// The width to use for `stream`: the width of its terminal, but at least 20 and at most 79; 79 if it is not a terminal.
size_t plot_width(std::FILE* stream);

}  // namespace trainer::reporting
