#include "reporting/drawing/png.h"

#include <libdeflate.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "trainer/error.h"

namespace trainer::drawing {
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

// Each row after a byte that says how it was filtered: not at all.
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
  if (!compressor) throw Error("out of memory for the compression of an image");
  std::string compressed(libdeflate_zlib_compress_bound(compressor.get(), bytes.size()), '\0');
  compressed.resize(libdeflate_zlib_compress(compressor.get(), bytes.data(), bytes.size(), compressed.data(), compressed.size()));
  return compressed;
}

}  // namespace

std::string encode_png(const RgbImage& image) {
  std::string header;
  append_big_endian(header, static_cast<uint32_t>(image.width));
  append_big_endian(header, static_cast<uint32_t>(image.height));
  // 8 bits, RGB; compression, filters and interlacing of the usual kind.
  header += std::string_view("\x08\x02\x00\x00\x00", 5);
  std::string file = "\x89PNG\r\n\x1a\n";
  append_chunk(file, "IHDR", header);
  append_chunk(file, "IDAT", compress(rows_of(image)));
  append_chunk(file, "IEND", "");
  return file;
}

}  // namespace trainer::drawing
