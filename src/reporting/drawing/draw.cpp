#include "reporting/drawing/draw.h"

#include <algorithm>
#include <utility>

namespace trainer::drawing {
namespace {

constexpr int kSpaceAbove = 2;

void set_pixel(RgbImage& image, int y, int x, const Colour& colour) {
  if (y < 0 || y >= image.height || x < 0 || x >= image.width) return;
  std::ranges::copy(colour, image.pixels.begin() + (std::ptrdiff_t{y} * image.width + x) * 3);
}

// Bytes after the first of a UTF-8 character.
bool continues_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0U) == 0x80U; }

// The letters without accents that resemble U+00C0 to U+017F.
constexpr std::string_view kLatin =
    "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYTsaaaaaaaceeeeiiiidnooooo/ouuuuyty"
    "AaAaAaCcCcCcCcDdDdEeEeEeEeEeGgGgGgGgHhHhIiIiIiIiIiIiJjKkkLlLlLlLlLlNnNnNnnNnOoOoOoOo"
    "RrRrRrSsSsSsSsTtTtTtUuUuUuUuUuUuWwYyYZzZzZzs";
constexpr uint32_t kFirstLatin = 0xC0;
constexpr char kUnknown = '?';

// Combining accents, as in names of files from macOS.
bool is_accent(uint32_t character) { return character >= 0x300 && character <= 0x36F; }

std::string to_ascii(std::string_view text) {
  std::string ascii;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (continues_character(text[i])) continue;
    const bool has_two_bytes = (byte & 0xE0U) == 0xC0U && i + 1 < text.size();
    const uint32_t character = has_two_bytes ? (byte & 0x1FU) << 6U | (static_cast<uint8_t>(text[i + 1]) & 0x3FU) : byte;
    if (has_two_bytes && is_accent(character)) continue;
    if (has_two_bytes && character >= kFirstLatin && character - kFirstLatin < kLatin.size()) {
      ascii += kLatin[character - kFirstLatin];
    } else {
      ascii += byte >= ' ' && byte <= '~' ? text[i] : kUnknown;
    }
  }
  return ascii;
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

void draw_text(RgbImage& image, int top, int left, std::string_view text, int width, const Colour& colour, int zoom) {
  int x = 0;
  for (const char character : to_ascii(text)) {
    if (x + kGlyphWidth * zoom > width) return;
    const auto& glyph = kGlyphs[static_cast<size_t>(character - kFirstGlyph)];
    for (int column = 0; column < kGlyphWidth; ++column) {
      for (int row = 0; row < kGlyphHeight; ++row) {
        const bool is_set = (glyph[static_cast<size_t>(column)] >> row & 1) != 0;
        if (is_set) fill_box(image, top + (kSpaceAbove + row) * zoom, left + x + column * zoom, zoom, zoom, colour);
      }
    }
    x += kCharacterWidth * zoom;
  }
}

std::optional<std::string> drawable(std::string_view text) {
  auto ascii = to_ascii(text);
  const bool is_whole = std::ranges::count(ascii, kUnknown) == std::ranges::count(text, kUnknown);
  return is_whole ? std::optional(std::move(ascii)) : std::nullopt;
}

int count_characters(std::string_view text) { return static_cast<int>(to_ascii(text).size()); }

}  // namespace trainer::drawing
