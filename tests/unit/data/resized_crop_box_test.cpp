#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <sstream>

#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

constexpr int kNumBoxes = 20000;
// For two samples of the same distribution with up to 23 degrees of freedom, fewer than one pair in a million has a larger chi squared.
constexpr double kLargest = 75;

TEST(ResizedCropBox, HasTheDistributionOfTorchvision) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/resized_crops.txt");
  int num_lines = 0;
  for (std::string line; std::getline(file, line); ++num_lines) {
    std::istringstream fields(line);
    int height = 0;
    int width = 0;
    Range scale{};
    Range ratio{};
    fields >> height >> width >> scale.least >> scale.greatest >> ratio.least >> ratio.greatest;
    std::array<double, 24> counts{};
    const EpochSeeds seeds(1, 0);
    for (int i = 0; i < kNumBoxes; ++i) {
      SampleRandom random(seeds, {i});
      const auto box = draw_resized_crop_box(height, width, scale, ratio, random);
      ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.top + box.height <= height && box.left + box.width <= width);
      ++counts[static_cast<size_t>((box.height - 1) * 8 / height)];
      ++counts[static_cast<size_t>(8 + (box.width - 1) * 8 / width)];
      ++counts[static_cast<size_t>(16 + box.top * 4 / (height - box.height + 1))];
      ++counts[static_cast<size_t>(20 + box.left * 4 / (width - box.width + 1))];
    }
    double chi_squared = 0;
    for (const double count : counts) {
      double expected = 0;
      fields >> expected;
      if (count + expected > 0) chi_squared += (count - expected) * (count - expected) / (count + expected);
    }
    EXPECT_LT(chi_squared, kLargest) << line;
  }
  EXPECT_EQ(num_lines, 4);
}

TEST(ResizedCropBox, AnImageWithoutSuchAPartGivesItsMiddle) {
  const EpochSeeds seeds(1, 0);
  SampleRandom random(seeds, {0});
  const auto tall = draw_resized_crop_box(/*height=*/100, /*width=*/2, {0.9, 1}, {0.75, 1.5}, random);
  EXPECT_EQ((std::array{tall.top, tall.left, tall.height, tall.width}), (std::array{48, 0, 3, 2}));
  const auto wide = draw_resized_crop_box(/*height=*/1, /*width=*/50, {0.9, 1}, {0.2, 0.4}, random);
  EXPECT_EQ((std::array{wide.top, wide.left, wide.height, wide.width}), (std::array{0, 24, 1, 1}));
}

}  // namespace
}  // namespace trainer::data
