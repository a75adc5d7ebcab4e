#include "input/resample.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "input/image_write.h"
#include "input/picture.h"
#include "input/pipeline.h"
#include "tests/testing/read_component.h"

namespace trainer::input {
namespace {

std::string fnv1a(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3;
  return fmt::format("{:016x}", hash);
}

// The image of make_resampling.py in that order of its pixels.
std::vector<uint8_t> golden_image(int height, int width, PixelOrder order) {
  std::vector<uint8_t> pixels(static_cast<size_t>(height * width * 3));
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const int at = order == PixelOrder::kPlanar ? (c * height + y) * width + x : (y * width + x) * 3 + c;
        pixels[static_cast<size_t>(at)] = static_cast<uint8_t>((x * 37 + y * 101 + c * 53 + x * y * 7) % 256);
      }
    }
  }
  return pixels;
}

// The result of a list of transforms, row by row, channels interleaved.
std::vector<uint8_t> transformed(const std::string& yaml, const ImageView& image, PictureMemory& memory) {
  const DatasetInfo info{.shape = {3, image.height, image.width}, .num_classes = 1};
  const Pipeline pipeline(testing::read_components(transform_registry(), yaml), info, {torch::kFloat64, /*channels_last=*/true});
  std::vector<double> values(static_cast<size_t>(c10::multiply_integers(pipeline.output_shape())));
  Sample sample;
  sample.image = image;
  pipeline.write(sample, {0, 0}, 0, memory, values.data());
  std::vector<uint8_t> pixels;
  for (const double value : values) pixels.push_back(static_cast<uint8_t>(std::lround(value * 255)));
  return pixels;
}

std::vector<uint8_t> resized_crop(const ImageView& image, const std::vector<int>& numbers, PictureMemory& memory) {
  Picture picture(image, memory);
  picture.crop(numbers[0], numbers[1], numbers[2], numbers[3]);
  picture.resize(numbers[4], numbers[5]);
  const auto& view = picture.view();
  EXPECT_EQ(view.window_height * view.window_width, numbers[4] * numbers[5]);
  std::vector<uint8_t> table(3 * 256);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint8_t>(i);
  std::vector<uint8_t> pixels(static_cast<size_t>(numbers[4] * numbers[5] * 3));
  write_image<uint8_t>(view, table, {}, /*channels_last=*/true, pixels.data());
  return pixels;
}

class ResampleOrder : public ::testing::TestWithParam<PixelOrder> {};

TEST_P(ResampleOrder, EqualsPillowBitForBit) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/resampling.txt");
  PictureMemory memory;  // the same for all, as in training
  int num_lines = 0;
  for (std::string line; std::getline(file, line); ++num_lines) {
    std::istringstream fields(line);
    std::vector<std::string> parts;
    for (std::string part; std::getline(fields, part, '\t');) parts.push_back(part);
    const int height = std::stoi(parts[0]);
    const int width = std::stoi(parts[1]);
    const auto pixels = golden_image(height, width, GetParam());
    const auto image = ImageView::whole(pixels.data(), 3, height, width, GetParam());
    if (parts.size() == 4) {
      EXPECT_EQ(fnv1a(transformed(parts[2], image, memory)), parts[3]) << line;
    } else {
      std::vector<int> numbers;
      for (size_t i = 2; i + 1 < parts.size(); ++i) numbers.push_back(std::stoi(parts[i]));
      EXPECT_EQ(fnv1a(resized_crop(image, numbers, memory)), parts.back()) << line;
    }
  }
  EXPECT_EQ(num_lines, 150);
}

INSTANTIATE_TEST_SUITE_P(Orders, ResampleOrder, ::testing::Values(PixelOrder::kPlanar, PixelOrder::kInterleaved));

}  // namespace
}  // namespace trainer::input
