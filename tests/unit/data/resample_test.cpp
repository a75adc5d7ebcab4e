#include "data/resample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "data/picture.h"
#include "data/pipeline.h"
#include "data/window_copy.h"
#include "tests/testing/golden_image.h"
#include "tests/unit/data/pixels_of.h"
#include "trainer/torch.h"

namespace trainer::data {
namespace {

using trainer::testing::fnv1a_text;
using trainer::testing::golden_image;
using trainer::testing::split;

std::vector<uint8_t> resized_crop(const ImageView& image, const std::vector<int>& numbers, PictureMemory& memory) {
  Picture picture(image, memory);
  picture.crop(numbers[0], numbers[1], numbers[2], numbers[3]);
  picture.resize(numbers[4], numbers[5]);
  const auto& view = picture.view();
  EXPECT_EQ(view.window_height * view.window_width, numbers[4] * numbers[5]);
  std::vector<uint8_t> pixels(static_cast<size_t>(numbers[4] * numbers[5] * 3));
  copy_rows(view, 0, view.window_height, PixelOrder::kInterleaved, pixels.data());
  return pixels;
}

class ResampleOrder : public ::testing::TestWithParam<PixelOrder> {};

TEST_P(ResampleOrder, EqualsPillowBitForBit) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/resampling.txt");
  PictureMemory memory;  // reused for all images, as in training
  int num_lines = 0;
  for (std::string line; std::getline(file, line); ++num_lines) {
    const auto parts = split(line, '\t');
    const int height = std::stoi(parts[0]);
    const int width = std::stoi(parts[1]);
    const auto pixels = golden_image(height, width, 3, GetParam());
    const auto image = ImageView::whole(pixels.data(), 3, height, width, GetParam());
    if (parts.size() == 4) {
      EXPECT_EQ(fnv1a_text(transformed(parts[2], image, memory)), parts[3]) << line;
    } else {
      std::vector<int> numbers;
      for (size_t i = 2; i + 1 < parts.size(); ++i) numbers.push_back(std::stoi(parts[i]));
      EXPECT_EQ(fnv1a_text(resized_crop(image, numbers, memory)), parts.back()) << line;
    }
  }
  EXPECT_EQ(num_lines, 300);
}

INSTANTIATE_TEST_SUITE_P(Orders, ResampleOrder, ::testing::Values(PixelOrder::kPlanar, PixelOrder::kInterleaved));

}  // namespace
}  // namespace trainer::data
