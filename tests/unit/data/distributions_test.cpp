#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "data/pipeline.h"
#include "tests/testing/golden_image.h"
#include "tests/testing/read_component.h"
#include "tests/unit/data/expect_counts.h"
#include "trainer/torch.h"

namespace trainer::data {
namespace {

using trainer::testing::fnv1a_text;
using trainer::testing::golden_image;
using trainer::testing::split;

constexpr int kNumSamples = 20000;

// The results of a transform and how often each occurred.
std::map<std::string, int> count_results(const std::string& yaml, const ImageView& image) {
  const DatasetInfo info{.shape = {image.channels, image.height, image.width}, .num_classes = 1};
  const Pipeline pipeline(trainer::testing::read_components(transform_registry(), "[" + yaml + "]"), info,
                          {torch::kFloat64, /*channels_last=*/true});
  std::vector<double> values(static_cast<size_t>(c10::multiply_integers(pipeline.output_shape())));
  std::vector<uint8_t> pixels(values.size());
  Sample sample;
  sample.image = image;
  PictureMemory memory;
  std::map<std::string, int> counts;
  for (int i = 0; i < kNumSamples; ++i) {
    pipeline.write(sample, {1, 0}, {i}, memory, values.data());
    for (size_t k = 0; k < values.size(); ++k) pixels[k] = static_cast<uint8_t>(std::lround(values[k] * 255));
    ++counts[fnv1a_text(pixels).substr(0, 8)];
  }
  return counts;
}

TEST(Distributions, AreThoseOfTorchvision) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/distributions.txt");
  int num_lines = 0;
  for (std::string line; std::getline(file, line); ++num_lines) {
    const auto parts = split(line, '\t');
    const int height = std::stoi(parts.at(1));
    const int width = std::stoi(parts.at(2));
    const int channels = std::stoi(parts.at(3));
    const auto pixels = golden_image(height, width, channels, PixelOrder::kPlanar);
    const auto counts = count_results(parts[0], ImageView::whole(pixels.data(), channels, height, width));
    expect_counts(counts, kNumSamples, parts.at(4), parts[0]);
  }
  EXPECT_EQ(num_lines, 19);
}

}  // namespace
}  // namespace trainer::data
