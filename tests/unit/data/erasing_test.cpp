#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "data/pipeline.h"
#include "tests/testing/read_component.h"
#include "trainer/torch.h"

namespace trainer::data {
namespace {

constexpr int kChannels = 3;

// An image of a single colour without zeros, and a list of transforms for it.
class ErasedImage {
 public:
  ErasedImage(const std::string& yaml, int height, int width, bool channels_last)
      : height_(height),
        width_(width),
        channels_last_(channels_last),
        pixels_(static_cast<size_t>(kChannels * height * width), 200),
        pipeline_(trainer::testing::read_components(transform_registry(), yaml), {.shape = {kChannels, height, width}, .num_classes = 1},
                  {torch::kFloat32, channels_last}) {}

  // Returns for each pixel whether it was erased (is 0). Expects that a pixel is 0 in all channels or in none.
  std::vector<bool> erased(int64_t index) const {
    const auto plane = static_cast<size_t>(height_ * width_);
    std::vector<float> out(pixels_.size());
    Sample sample;
    sample.image = ImageView::whole(pixels_.data(), kChannels, height_, width_);
    PictureMemory memory;
    pipeline_.write(sample, {3, 0}, {index}, memory, out.data());
    std::vector<bool> zeros;
    for (size_t i = 0; i < plane; ++i) {
      const auto is_zero = [&](size_t c) { return out[channels_last_ ? i * kChannels + c : c * plane + i] == 0; };
      zeros.push_back(is_zero(0));
      for (size_t c = 1; c < kChannels; ++c) EXPECT_EQ(is_zero(c), zeros.back()) << i;
    }
    return zeros;
  }

 private:
  int height_;
  int width_;
  bool channels_last_;
  std::vector<uint8_t> pixels_;
  Pipeline pipeline_;
};

TEST(Erasing, IsDoneAfterNormalisation) {
  const std::string normalize = "normalize: {mean: [0.5, 0.4, 0.3], std: [0.2, 0.25, 0.3]}";
  for (const char* erasing : {"random_erasing: {p: 1}", "cutout: {size: 3}", "cutout: {size: 3}, random_erasing"}) {
    const auto yaml = fmt::format("[{}, {}]", normalize, erasing);
    const ErasedImage planar(yaml, 9, 7, /*channels_last=*/false);
    const ErasedImage interleaved(yaml, 9, 7, /*channels_last=*/true);
    int num_erased = 0;
    for (int64_t i = 0; i < 50; ++i) {
      const auto zeros = planar.erased(i);
      EXPECT_EQ(zeros, interleaved.erased(i)) << yaml;
      num_erased += static_cast<int>(std::count(zeros.begin(), zeros.end(), true));
    }
    EXPECT_GT(num_erased, 50) << yaml;
  }
}

TEST(Erasing, ACutoutIsASquareAroundARandomPixel) {
  constexpr int kDraws = 9000;
  for (const int size : {1, 2, 3, 4, 20}) {
    const ErasedImage image(fmt::format("[cutout: {{size: {}}}]", size), 3, 5, /*channels_last=*/false);
    std::map<std::vector<bool>, int> counts;
    for (int64_t i = 0; i < kDraws; ++i) ++counts[image.erased(i)];
    std::map<std::vector<bool>, int> expected;
    for (int center = 0; center < 15; ++center) {
      std::vector<bool> zeros(15);
      for (int at = 0; at < 15; ++at) {
        const int down = at / 5 - (center / 5 - size / 2);
        const int right = at % 5 - (center % 5 - size / 2);
        zeros[static_cast<size_t>(at)] = down >= 0 && down < size && right >= 0 && right < size;
      }
      ++expected[zeros];
    }
    ASSERT_EQ(counts.size(), expected.size()) << size;
    for (const auto& [zeros, count] : counts) {
      const double p = expected[zeros] / 15.0;
      EXPECT_NEAR(count, p * kDraws, 4.5 * std::sqrt(p * (1 - p) * kDraws)) << size;
    }
  }
}

}  // namespace
}  // namespace trainer::data
