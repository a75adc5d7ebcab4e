#include <gtest/gtest.h>
#include <libdeflate.h>

#include <cstdint>

#include "reporting/drawing/draw.h"

namespace trainer::drawing {
namespace {

// The bytes before and after the compressed ones are what Pillow 13.0 writes for an image of this size: Image.new("RGB", (3, 2)).save(file,
// "PNG").
TEST(EncodePng, WritesHeaderRowsAndEnd) {
  const RgbImage image{2, 3, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 255}};
  const auto file = encode_png(image);
  const std::string start("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x03\0\0\0\x02\x08\x02\0\0\0\x12\x16\xf1\x4d", 33);
  const std::string end("\0\0\0\0IEND\xae\x42\x60\x82", 12);
  ASSERT_GT(file.size(), start.size() + end.size() + 12);
  EXPECT_EQ(file.substr(0, start.size()), start);
  EXPECT_TRUE(file.ends_with(end));

  const auto part = file.substr(start.size(), file.size() - start.size() - end.size());
  EXPECT_EQ(part.substr(4, 4), "IDAT");
  const auto compressed = part.substr(8, part.size() - 12);
  EXPECT_EQ(static_cast<uint8_t>(part[3]), compressed.size());
  const auto sum = libdeflate_crc32(0, part.data() + 4, part.size() - 8);
  EXPECT_EQ(static_cast<uint8_t>(part.back()), sum & 0xFF);
  std::string rows(20, ' ');
  auto* decompressor = libdeflate_alloc_decompressor();
  EXPECT_EQ(libdeflate_zlib_decompress(decompressor, compressed.data(), compressed.size(), rows.data(), rows.size(), nullptr),
            LIBDEFLATE_SUCCESS);
  libdeflate_free_decompressor(decompressor);
  EXPECT_EQ(rows, std::string("\0\0\1\2\3\4\5\6\7\x8\0\x9\xa\xb\xc\xd\xe\xf\x10\xff", 20));
}

}  // namespace
}  // namespace trainer::drawing
