#include "reporting/confusion_picture.h"

#include <gtest/gtest.h>

#include <set>

#include "reporting/drawing/draw.h"

namespace trainer::reporting::test {
namespace {

drawing::Colour colour_at(const drawing::RgbImage& image, int y, int x) {
  const auto* pixel = &image.pixels[static_cast<size_t>((y * image.width + x) * 3)];
  return {pixel[0], pixel[1], pixel[2]};
}

// Looks at the upper left pixel of each cell. Cells of few classes with counts below 100 have 16 x 16 pixels.
TEST(ConfusionPicture, ShadesEachCellByItsPartOfTheRow) {
  const auto image = draw_confusion({3, 1, 0, 4, 0, 0, 0, 0, 0}, {});
  const int top = image.height - 4 - 3 * 16;
  const int left = 6 + 8;
  const auto cell = [&](int row, int column) { return colour_at(image, top + row * 16, left + column * 16); };
  const drawing::Colour dark{8, 48, 107};
  EXPECT_EQ(cell(1, 0), dark);
  // A quarter and three quarters of the way from white.
  EXPECT_EQ(cell(0, 1), (drawing::Colour{193, 203, 218}));
  EXPECT_EQ(cell(0, 0), (drawing::Colour{70, 100, 144}));
  // A class without samples.
  for (int column = 0; column < 3; ++column) EXPECT_EQ(cell(2, column), drawing::kWhite) << column;
}

// The colours in the last cell, which holds all samples of its class.
std::set<drawing::Colour> colours_of_last_cell(size_t num_classes, int cell_height, int cell_width) {
  std::vector<int64_t> confusion(num_classes * num_classes, 0);
  confusion.back() = 1;
  const auto image = draw_confusion(confusion, {});
  std::set<drawing::Colour> colours;
  for (int y = 0; y + 1 < cell_height; ++y) {
    for (int x = 0; x + 1 < cell_width; ++x)
      colours.insert(colour_at(image, image.height - 4 - cell_height + y, image.width - 4 - cell_width + x));
  }
  return colours;
}

TEST(ConfusionPicture, ShowsCountsOfFewClassesOnly) {
  const drawing::Colour dark{8, 48, 107};
  EXPECT_EQ(colours_of_last_cell(12, 16, 16), (std::set{dark, drawing::kWhite}));
  EXPECT_EQ(colours_of_last_cell(50, 14, 14), std::set{dark});
}

TEST(ConfusionPicture, LongNamesAreCut) {
  const std::vector<int64_t> confusion = {7, 0, 0, 1'000'000};
  const auto with_names = draw_confusion(confusion, {std::string(100, 'm'), "b"});
  const auto without = draw_confusion(confusion, {});
  EXPECT_EQ(with_names.height, without.height);
  EXPECT_EQ(with_names.width, 20 * drawing::kCharacterWidth + 8 + 2 * 46 + 4);
}

}  // namespace
}  // namespace trainer::reporting::test
