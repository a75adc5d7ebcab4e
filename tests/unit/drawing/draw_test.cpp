#include "reporting/drawing/draw.h"

#include <gtest/gtest.h>

#include <string>

namespace trainer::drawing {
namespace {

// Returns the image as text with '#' for each black pixel.
std::string dots_of(const RgbImage& image) {
  std::string text;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) text += image.pixels[static_cast<size_t>((y * image.width + x) * 3)] == 0 ? '#' : '.';
    text += '\n';
  }
  return text;
}

std::string dots_of_text(std::string_view text, int width, int image_width, int zoom = 1) {
  auto image = make_image(kTextHeight * zoom, image_width);
  draw_text(image, 0, 0, text, width, kBlack, zoom);
  return dots_of(image);
}

TEST(DrawText, DrawsAsciiCharacters) {
  EXPECT_EQ(dots_of_text("Fg1", 18, 18),
            "..................\n"
            "..................\n"
            "#####.........#...\n"
            "#............##...\n"
            "#......####...#...\n"
            "####..#...#...#...\n"
            "#.....#...#...#...\n"
            "#......####...#...\n"
            "#.........#..###..\n"
            ".......###........\n"
            "..................\n"
            "..................\n");
}

TEST(DrawText, OtherCharactersAreQuestionMarks) {
  EXPECT_EQ(dots_of_text("\xD0\xAF\xE7\x8C\xAB\n~", 30, 30), dots_of_text("???~", 30, 30));
  EXPECT_EQ(count_characters("\xD0\xAF\xE7\x8C\xAB~"), 3);
  EXPECT_EQ(drawable("\xE7\x8C\xAB"), std::nullopt);
  EXPECT_EQ(drawable("cat?"), "cat?");
}

TEST(DrawText, LatinLettersLoseTheirAccents) {
  EXPECT_EQ(drawable("\u00C0\u00DF\u00E9\u00FF \u0100\u0141\u0142\u0159\u017E\u017F"), "Asey ALlrzs");
  EXPECT_EQ(drawable("e\u0301te\u0300"), "ete") << "combining accents";
  EXPECT_EQ(count_characters("e\u0301te\u0300"), 3);
  EXPECT_EQ(dots_of_text("\u00E9t\u00E9", 30, 30), dots_of_text("ete", 30, 30));
}

TEST(DrawText, Zooms) {
  const auto small = dots_of_text("Fg", 11, 12);
  const auto large = dots_of_text("Fg", 22, 24, 2);
  for (size_t y = 0; y < 2 * kTextHeight; ++y) {
    for (size_t x = 0; x < 24; ++x) ASSERT_EQ(large[y * 25 + x], small[y / 2 * 13 + x / 2]) << y << " " << x;
  }
  EXPECT_EQ(dots_of_text("Fg", 21, 24, 2), dots_of_text("F", 21, 24, 2));
}

TEST(DrawText, LeavesOutWhatDoesNotFit) {
  EXPECT_EQ(dots_of_text("abc", 16, 30), dots_of_text("ab", 30, 30));
  EXPECT_EQ(dots_of_text("abc", 17, 30), dots_of_text("abc", 30, 30));
  // Parts outside the image are not drawn, and nothing is written outside its memory.
  auto image = make_image(3, 4);
  draw_text(image, -1, -2, "HH", 12);
  fill_box(image, 2, 3, 5, 5, kBlack);
  EXPECT_EQ(image.pixels.size(), 36U);
  EXPECT_EQ(dots_of(image), "....\n..#.\n..##\n");
}

TEST(FillBox, FillsWithAColour) {
  auto image = make_image(2, 2, {1, 2, 3});
  fill_box(image, 0, 1, 2, 1, {4, 5, 6});
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace trainer::drawing
