#include "reporting/plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <vector>

namespace trainer::reporting {
namespace {

PlotOptions options_of(size_t width, size_t height) {
  return {.x_title = "step", .y_title = "lr", .width = width, .height = height, .mark_x = {}};
}

TEST(Plot, DrawsALineBetweenAxesWithLabels) {
  const std::vector<PlotPoint> points = {{0, 0}, {10, 3}, {20, 0}};
  EXPECT_EQ(plot(points, options_of(30, 4)),
            "lr\n"
            "3 |           *****\n"
            "  |       ****     ****\n"
            "  |   ****             ****\n"
            "0 |***                     ***\n"
            "  +---------------------------\n"
            "   0          step          20\n");
}

TEST(Plot, IsNeverWiderThanAsked) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 300; ++i) points.push_back({.x = static_cast<double>(i) * 1e-7, .y = -123456.0 * i});
  for (const size_t width : {30, 57, 79, 200}) {
    std::istringstream lines(plot(points, options_of(width, 8)));
    size_t widest = 0;
    for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
    EXPECT_EQ(widest, width);
  }
}

TEST(Plot, MarksAPlaceOnALogarithmicAxis) {
  auto options = options_of(30, 2);
  options.log_x = true;
  options.mark_x = 1e-2;
  const std::vector<PlotPoint> points = {{0, 7}, {1e-4, 1}, {1e-2, 1}, {1, 2}};
  EXPECT_EQ(plot(points, options),
            "lr\n"
            "2 |                    *******\n"
            "1 |********************\n"
            "  +-------------^-------------\n"
            "   0.0001        step        1\n");
  options.mark_x = 10;
  EXPECT_EQ(plot(points, options).find('^'), std::string::npos);
}

TEST(Plot, InterruptsTheCurveAtValuesThatAreNotFinite) {
  const std::vector<PlotPoint> points = {{0, 1}, {1, std::numeric_limits<double>::quiet_NaN()}, {2, 1}};
  EXPECT_EQ(plot(points, options_of(30, 2)),
            "lr\n"
            "1 |\n"
            "1 |*                         *\n"
            "  +---------------------------\n"
            "   0          step           2\n");
}

TEST(Plot, IsEmptyWithoutAPoint) {
  EXPECT_EQ(plot({}, options_of(30, 4)), "");
  const std::vector<PlotPoint> points = {{0, std::numeric_limits<double>::infinity()}};
  EXPECT_EQ(plot(points, options_of(30, 4)), "");
}

}  // namespace
}  // namespace trainer::reporting
