#include "data/operations/operations.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "data/pipeline.h"
#include "data/transforms/augmentation.h"
#include "tests/testing/golden_image.h"
#include "tests/unit/data/pixels_of.h"
#include "trainer/torch.h"

namespace trainer::data {
namespace {

using trainer::testing::fnv1a_text;
using trainer::testing::golden_image;
using trainer::testing::split;

const std::map<std::string, Augmentation>& augmentations() {
  static const std::map<std::string, Augmentation> all = {
      {"Identity", Augmentation::kIdentity},         {"ShearX", Augmentation::kShearX},         {"ShearY", Augmentation::kShearY},
      {"TranslateX", Augmentation::kTranslateX},     {"TranslateY", Augmentation::kTranslateY}, {"Rotate", Augmentation::kRotate},
      {"Brightness", Augmentation::kBrightness},     {"Color", Augmentation::kColor},           {"Contrast", Augmentation::kContrast},
      {"Sharpness", Augmentation::kSharpness},       {"Posterize", Augmentation::kPosterize},   {"Solarize", Augmentation::kSolarize},
      {"AutoContrast", Augmentation::kAutoContrast}, {"Equalize", Augmentation::kEqualize},     {"Invert", Augmentation::kInvert},
  };
  return all;
}

std::vector<uint8_t> apply_operation(const std::string& text, const ImageView& image, PictureMemory& memory) {
  const auto words = split(text, ' ');
  Picture picture(image, memory);
  const double argument = std::stod(words.at(1));
  if (words[0] == "adjust_hue") {
    adjust_hue(picture.pixels(), argument);
  } else {
    augment(picture, augmentations().at(words[0]), argument);
  }
  return pixels_of(picture);
}

class OperationsOrder : public ::testing::TestWithParam<PixelOrder> {};

TEST_P(OperationsOrder, EqualTorchvisionBitForBit) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/operations.txt");
  PictureMemory memory;  // reused for all images, as in training
  int num_lines = 0;
  for (std::string line; std::getline(file, line); ++num_lines) {
    const auto parts = split(line, '\t');
    const int height = std::stoi(parts.at(0));
    const int width = std::stoi(parts.at(1));
    const int channels = std::stoi(parts.at(2));
    auto pixels = golden_image(height, width, channels, GetParam());
    if (num_lines % 2 == 1) {
      for (auto& pixel : pixels) pixel = static_cast<uint8_t>(pixel / 3 + 40);
    }
    const auto before = pixels;
    const auto image = ImageView::whole(pixels.data(), channels, height, width, GetParam());
    const auto& text = parts.at(3);
    const auto result = text.starts_with("[") ? transformed(text, image, memory) : apply_operation(text, image, memory);
    EXPECT_EQ(fnv1a_text(result), parts.at(4)) << line;
    EXPECT_EQ(pixels, before) << "the stored image was changed: " << line;
  }
  EXPECT_EQ(num_lines, 455);
}

INSTANTIATE_TEST_SUITE_P(Orders, OperationsOrder, ::testing::Values(PixelOrder::kPlanar, PixelOrder::kInterleaved));

TEST(Operations, MagnitudesOfAugmentationsAreThoseOfTorchvision) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/magnitudes.txt");
  int num_lines = 0;
  for (std::string line; std::getline(file, line); ++num_lines) {
    const auto parts = split(line, '\t');
    const auto range = parts.at(0) == "trivial_augment_wide" ? MagnitudeRange::kWide : MagnitudeRange::kNormal;
    const int num_bins = std::stoi(parts.at(2));
    std::vector<uint8_t> bytes(static_cast<size_t>(num_bins) * sizeof(double));
    for (int bin = 0; bin < num_bins; ++bin) {
      const double magnitude =
          magnitude_of(augmentations().at(parts.at(1)), range, bin, num_bins, std::stoi(parts.at(3)), std::stoi(parts.at(4)));
      std::memcpy(&bytes[static_cast<size_t>(bin) * sizeof magnitude], &magnitude, sizeof magnitude);
    }
    EXPECT_EQ(fnv1a_text(bytes), parts.at(5)) << line;
  }
  EXPECT_EQ(num_lines, 168);
}

TEST(Operations, ABlurDiffersFromTorchvisionByOneInFewPixels) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/blurs.txt");
  PictureMemory memory;
  size_t num_pixels = 0;
  size_t num_different = 0;
  for (std::string line; std::getline(file, line);) {
    const auto parts = split(line, '\t');
    const int height = std::stoi(parts.at(0));
    const int width = std::stoi(parts.at(1));
    const int channels = std::stoi(parts.at(2));
    const auto stored = golden_image(height, width, channels, PixelOrder::kInterleaved);
    Picture picture(ImageView::whole(stored.data(), channels, height, width, PixelOrder::kInterleaved), memory);
    const auto pixels = picture.pixels();
    gaussian_blur(pixels, {std::stoi(parts.at(3)), std::stoi(parts.at(4)), std::stod(parts.at(5))}, memory.blur, picture.replace_pixels());
    const auto blurred = pixels_of(picture);
    ASSERT_EQ(parts.at(6).size(), 2 * blurred.size());
    for (size_t i = 0; i < blurred.size(); ++i) {
      const int difference = std::abs(blurred[i] - std::stoi(parts.at(6).substr(2 * i, 2), nullptr, 16));
      ASSERT_LE(difference, 1) << line.substr(0, 30) << " value " << i;
      num_different += difference == 0 ? 0 : 1;
    }
    num_pixels += blurred.size();
  }
  EXPECT_GT(num_pixels, 7000U);
  EXPECT_LE(num_different, 2U);
}

}  // namespace
}  // namespace trainer::data
