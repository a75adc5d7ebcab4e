#include "reporting/drawing/draw.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "trainer/error.h"

namespace trainer::drawing {
namespace {

constexpr int kSpaceAbove = 2;

void set_pixel(RgbImage& image, int y, int x, const Colour& colour) {
  if (y < 0 || y >= image.height || x < 0 || x >= image.width) return;
  std::ranges::copy(colour, image.pixels.begin() + (std::ptrdiff_t{y} * image.width + x) * 3);
}

// Whether the byte is not the first of a UTF-8 character.
bool continues_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0U) == 0x80U; }

// The letters without accents for U+00C0 to U+017F.
constexpr std::string_view kLatin =
    "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYTsaaaaaaaceeeeiiiidnooooo/ouuuuyty"
    "AaAaAaCcCcCcCcDdDdEeEeEeEeEeGgGgGgGgHhHhIiIiIiIiIiIiJjKkkLlLlLlLlLlNnNnNnnNnOoOoOoOo"
    "RrRrRrSsSsSsSsTtTtTtUuUuUuUuUuUuWwYyYZzZzZzs";
constexpr uint32_t kFirstLatin = 0xC0;
constexpr char kUnknown = '?';

// Combining accents, which occur in file names from macOS.
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

namespace {

constexpr int kCompressionLevel = 6;

void append_big_endian(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xFF);
}

void append_chunk(std::string& out, std::string_view name, std::string_view content) {
  append_big_endian(out, static_cast<uint32_t>(content.size()));
  const size_t checked = out.size();
  out += name;
  out += content;
  append_big_endian(out, libdeflate_crc32(0, out.data() + checked, out.size() - checked));
}

// The pixels as PNG requires: each row begins with its filter type, here 0 (none).
std::string rows_of(const RgbImage& image) {
  const size_t row_size = static_cast<size_t>(image.width) * 3;
  std::string rows;
  rows.reserve((row_size + 1) * static_cast<size_t>(image.height));
  for (size_t y = 0; y < static_cast<size_t>(image.height); ++y) {
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(image.pixels.data()) + y * row_size, row_size);
  }
  return rows;
}

std::string compress(const std::string& bytes) {
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor(
      libdeflate_alloc_compressor(kCompressionLevel), &libdeflate_free_compressor);
  if (!compressor) throw Error("out of memory while an image is compressed");
  std::string compressed(libdeflate_zlib_compress_bound(compressor.get(), bytes.size()), '\0');
  compressed.resize(libdeflate_zlib_compress(compressor.get(), bytes.data(), bytes.size(), compressed.data(), compressed.size()));
  return compressed;
}

}  // namespace

std::string encode_png(const RgbImage& image) {
  std::string header;
  append_big_endian(header, static_cast<uint32_t>(image.width));
  append_big_endian(header, static_cast<uint32_t>(image.height));
  // 8 bits, RGB; the only methods of compression and filtering; no interlacing.
  header += std::string_view("\x08\x02\x00\x00\x00", 5);
  std::string file = "\x89PNG\r\n\x1a\n";
  append_chunk(file, "IHDR", header);
  append_chunk(file, "IDAT", compress(rows_of(image)));
  append_chunk(file, "IEND", "");
  return file;
}

}  // namespace trainer::drawing
