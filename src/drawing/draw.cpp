#include "drawing/draw.h"

#include <algorithm>

#include "drawing/font.h"

namespace trainer::drawing {
namespace {

constexpr int kSpaceAbove = 2;

void set_pixel(RgbImage& image, int y, int x, const Colour& colour) {
  if (y < 0 || y >= image.height || x < 0 || x >= image.width) return;
  std::ranges::copy(colour, image.pixels.begin() + (std::ptrdiff_t{y} * image.width + x) * 3);
}

// Bytes after the first of a UTF-8 character.
bool continues_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0U) == 0x80U; }

const Glyph& glyph_of(char byte) {
  const bool is_drawable = byte >= ' ' && byte <= '~';
  return kGlyphs[static_cast<size_t>((is_drawable ? byte : '?') - kFirstGlyph)];
}

}  // namespace

RgbImage make_image(int height, int width, const Colour& colour) {
  RgbImage image{height, width, {}};
  image.pixels.resize(static_cast<size_t>(height) * static_cast<size_t>(width) * 3);
  fill_box(image, 0, 0, height, width, colour);
  return image;
}

void fill_box(RgbImage& image, int top, int left, int height, int width, const Colour& colour) {
  for (int y = top; y < top + height; ++y) {
    for (int x = left; x < left + width; ++x) set_pixel(image, y, x, colour);
  }
}

void draw_text(RgbImage& image, int top, int left, std::string_view text, int width, const Colour& colour) {
  int x = 0;
  for (const char byte : text) {
    if (continues_character(byte)) continue;
    if (x + kGlyphWidth > width) return;
    const auto& glyph = glyph_of(byte);
    for (int column = 0; column < kGlyphWidth; ++column) {
      for (int row = 0; row < kGlyphHeight; ++row) {
        const bool is_set = (glyph[static_cast<size_t>(column)] >> row & 1) != 0;
        if (is_set) set_pixel(image, top + kSpaceAbove + row, left + x + column, colour);
      }
    }
    x += kCharacterWidth;
  }
}

int count_characters(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(text, [](char byte) { return !continues_character(byte); }));
}

}  // namespace trainer::drawing
