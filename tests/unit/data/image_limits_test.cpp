#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/image_file.h"

namespace trainer::data {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Bytes = std::vector<uint8_t>;

void append(Bytes& file, uint32_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) file.push_back(static_cast<uint8_t>(value >> 8 * i));
}

// A TIFF file. `fields`: the values by tag. `data`: the content of its only strip or tile.
Bytes tiff(std::map<uint16_t, uint32_t> fields, const Bytes& data) {
  const bool is_tiled = fields.contains(322);
  fields[is_tiled ? 325 : 279] = static_cast<uint32_t>(data.size());
  auto& offset = fields[is_tiled ? 324 : 273];
  offset = 14 + 12 * static_cast<uint32_t>(fields.size());
  Bytes file = {'I', 'I', 42, 0, 8, 0, 0, 0};
  append(file, static_cast<uint32_t>(fields.size()), 2);
  for (const auto& [tag, value] : fields) {
    append(file, tag, 2);
    append(file, 4, 2);  // 32 bits
    append(file, 1, 4);
    append(file, value, 4);
  }
  append(file, 0, 4);
  file.insert(file.end(), data.begin(), data.end());
  return file;
}

// A grey TIFF file; with one bit per pixel, 0 is white.
Bytes grey_tiff(uint32_t width, uint32_t height, uint32_t bits, uint32_t compression, const Bytes& data) {
  return tiff({{256, width}, {257, height}, {258, bits}, {259, compression}, {262, bits == 1 ? 0 : 1}, {277, 1}, {278, height}}, data);
}

void expect_refused_image(const Bytes& file, const std::string& reason) {
  Bytes pixels;
  EXPECT_THAT([&] { decode_image(file, pixels); }, ThrowsMessage<std::runtime_error>(HasSubstr(reason)));
}

void expect_pixels(const Bytes& file, int width, int height, uint8_t value) {
  Bytes pixels;
  const auto view = decode_image(file, pixels);
  EXPECT_EQ(view.width, width);
  EXPECT_EQ(view.height, height);
  EXPECT_THAT(pixels, Each(value));
}

class ImageLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TRAINER_WITH_OPENCV) GTEST_SKIP() << "a build without OpenCV";
  }
};

TEST_F(ImageLimits, ErrorsOfLibtiffNameItAndTheirPlace) {
  expect_refused_image(grey_tiff(8, 8, 8, 5, {0xFF, 0xFF, 0xFF}),
                       "it is damaged, or a kind of TIFF that is not supported: libtiff: Using code not yet in table; ");
  expect_refused_image({'I', 'I', '*', 0, 0xFF, 0xFF, 0xFF, 0}, ": libtiff: TIFFFetchDirectory: Can not read TIFF directory count; ");
}

TEST_F(ImageLimits, TheDataOfATiffCanGiveItsPixels) {
  const Bytes data(400, 0);
  for (const uint32_t compression : {1U, 5U, 7U, 8U, 32773U, 32946U}) {
    expect_refused_image(grey_tiff(65535, 4096, 8, compression, data),
                         "it is damaged: it does not have enough data for 65535 x 4096 pixels");
  }
  for (const uint32_t compression : {2U, 3U, 4U}) {
    expect_refused_image(grey_tiff(65535, 4096, 1, compression, data),
                         "it is damaged: it does not have enough data for 65535 x 4096 pixels");
  }
  // The smallest possible files for their numbers of pixels: 128 pixels in two bytes, or a white row in one bit.
  Bytes runs;
  for (int i = 0; i < 64; ++i) runs.insert(runs.end(), {0x81, 7});
  expect_pixels(grey_tiff(128, 64, 8, 32773, runs), 128, 64, 7);
  expect_pixels(grey_tiff(1000, 64, 1, 4, Bytes(8, 0xFF)), 1000, 64, 255);
}

TEST_F(ImageLimits, TilesOfATiffAreCheckedBeforeTheirData) {
  const auto file = [](uint32_t size, uint32_t tile) {
    return tiff({{256, size}, {257, size}, {258, 8}, {259, 7}, {262, 1}, {277, 1}, {322, tile}, {323, tile}}, Bytes(300, 0));
  };
  expect_refused_image(file(500, 1), "it is damaged: it does not have enough data for 500 x 500 pixels");
  expect_refused_image(file(16, 65536), "its tiles of 65536 x 65536 pixels are too large");
}

TEST_F(ImageLimits, ValuesOfATiffAreCheckedBeforeMemoryIsTaken) {
  const auto expect = [](std::map<uint16_t, uint32_t> fields, const std::string& reason) {
    const auto file = tiff(std::move(fields), Bytes(300, 0));
    DecodedMemory memory;
    EXPECT_THAT([&] { decode_image(file, {.mode = ImageMode::kRaw}, memory); }, ThrowsMessage<std::runtime_error>(HasSubstr(reason)));
    EXPECT_TRUE(memory.values.empty());
  };
  // Floating-point numbers of 32 bits.
  expect({{256, 16000}, {257, 16000}, {258, 32}, {259, 1}, {262, 1}, {277, 1}, {278, 16000}, {339, 3}},
         "it is damaged: it does not have enough data for 16000 x 16000 pixels");
  expect({{256, 16}, {257, 16}, {258, 64}, {259, 4}, {262, 1}, {277, 60000}, {322, 128}, {323, 128}, {339, 3}},
         "it is a TIFF image with the compression CCITT Group 4; save it with LZW or Deflate, or uncompressed");
  expect({{256, 16}, {257, 16}, {258, 64}, {259, 8}, {262, 1}, {277, 60000}, {322, 4096}, {323, 4096}, {339, 3}},
         "its tiles of 4096 x 4096 pixels are too large");
  expect({{256, 4096}, {257, 4096}, {258, 8}, {259, 1}, {262, 1}, {277, 60000}, {278, 4096}, {339, 1}},
         "it has 60000 channels of 4096 x 4096 pixels, but 1 to 268 million values in total are supported");
}

TEST_F(ImageLimits, TiffsOfOtherSamplesAreNamed) {
  const auto file = [](uint32_t format) {
    return tiff({{256, 16}, {257, 16}, {258, 8}, {259, 1}, {262, 1}, {277, 1}, {278, 16}, {339, format}}, Bytes(256, 0));
  };
  expect_refused_image(file(4), "it is a TIFF image of values of an unknown type (sample format 4) with 8 bits each, which");
  expect_refused_image(file(5), "it is a TIFF image of complex numbers with 8 bits each, which");
  expect_refused_image(file(6), "it is a TIFF image of complex numbers with 8 bits each, which");
}

}  // namespace
}  // namespace trainer::data
