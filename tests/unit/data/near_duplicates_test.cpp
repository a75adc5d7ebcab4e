#include "data/near_duplicates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

namespace trainer::data {
namespace {

// A thumbnail of random waves, cut from a larger image.
class Scene {
 public:
  explicit Scene(uint32_t seed) : random_(seed) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (auto& wave : waves_) wave = {6 * uniform(random_), 6 * uniform(random_), 3.2 * uniform(random_), uniform(random_)};
  }

  // `zoom`: 1 shows the whole image; `shift`: 1 is the width of the image.
  Thumbnail draw(double zoom = 1, double shift = 0, double brightness = 1, double noise = 0) {
    std::normal_distribution<double> normal(0, 1);
    Thumbnail thumbnail;
    for (size_t i = 0; i < thumbnail.size(); ++i) {
      const double y = ((static_cast<double>(i / kThumbnailSide) + 0.5) / kThumbnailSide - 0.5) / zoom;
      const double x = ((static_cast<double>(i % kThumbnailSide) + 0.5) / kThumbnailSide - 0.5) / zoom + shift;
      double value = 0;
      for (const auto& [down, right, phase, height] : waves_) value += height * std::sin(6.2832 * (down * y + right * x) + phase);
      thumbnail[i] = static_cast<uint8_t>(std::clamp(brightness * (110 + 22 * value) + noise * normal(random_), 0.0, 255.0));
    }
    return thumbnail;
  }

 private:
  struct Wave {
    double down, right, phase, height;
  };
  std::mt19937 random_;
  std::array<Wave, 12> waves_;
};

std::vector<std::pair<uint32_t, uint32_t>> find(const std::vector<Thumbnail>& thumbnails, const std::vector<uint8_t>& parts = {}) {
  std::vector<ComparedPicture> pictures;
  for (size_t i = 0; i < thumbnails.size(); ++i) pictures.push_back({&thumbnails[i], i < parts.size() ? parts[i] : uint8_t{0}});
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (const auto& pair : find_near_duplicates(pictures, /*num_threads=*/2, [] { return true; }))
    pairs.emplace_back(pair.first, pair.second);
  return pairs;
}

TEST(NearDuplicatesTest, FindsChangedCopiesAndNothingElse) {
  constexpr uint32_t kNum = 300;
  std::vector<Thumbnail> thumbnails;
  std::vector<std::pair<uint32_t, uint32_t>> expected;
  for (uint32_t i = 0; i < kNum; ++i) thumbnails.push_back(Scene(i).draw());
  for (uint32_t i = 0; i < kNum; i += 10) {
    Scene scene(i);
    expected.emplace_back(i, thumbnails.size());
    thumbnails.push_back(i % 30 == 0 ? scene.draw(1, 0, 1, 2) : i % 30 == 10 ? scene.draw(1, 0, 1.15) : scene.draw(1.04, 0.01, 0.95, 1));
  }
  EXPECT_EQ(find(thumbnails), expected);
}

TEST(NearDuplicatesTest, DoesNotCompareWhatHasNoStructure) {
  const std::vector<Thumbnail> thumbnails(50, Thumbnail{});
  EXPECT_TRUE(find(thumbnails).empty());
  EXPECT_TRUE(find({}).empty());
}

// Different images of the same scene from the same place, with small differences, are not reported as duplicates.
TEST(NearDuplicatesTest, TellsPicturesOfTheSameThingApart) {
  std::vector<Thumbnail> thumbnails;
  const auto common = Scene(7).draw();
  for (uint32_t i = 0; i < 2000; ++i) {
    const auto own = Scene(100 + i).draw();
    Thumbnail thumbnail;
    for (size_t p = 0; p < thumbnail.size(); ++p) thumbnail[p] = static_cast<uint8_t>((7 * common[p] + own[p]) / 8);
    thumbnails.push_back(thumbnail);
  }
  auto copy = thumbnails[123];
  for (size_t p = 0; p < copy.size(); p += 3) ++copy[p];
  thumbnails.push_back(copy);
  EXPECT_EQ(find(thumbnails), (std::vector<std::pair<uint32_t, uint32_t>>{{123, 2000}}));
}

// Many copies in the same part do not hide a copy in another part.
TEST(NearDuplicatesTest, LooksIntoEachPart) {
  constexpr uint32_t kNum = 600, kNumCopies = 60;
  std::vector<Thumbnail> thumbnails;
  for (uint32_t i = 0; i < kNum; ++i) thumbnails.push_back(Scene(i).draw());
  for (uint32_t i = 0; i < kNumCopies; ++i) thumbnails.push_back(Scene(5).draw(1, 0, 1 + 0.001 * i, 0.5));
  std::vector<uint8_t> parts(thumbnails.size(), 1);
  parts[5] = 0;
  const auto pairs = find(thumbnails, parts);
  for (uint32_t i = kNum; i < kNum + kNumCopies; ++i) EXPECT_TRUE(std::ranges::find(pairs, std::pair(5U, i)) != pairs.end()) << i;
}

TEST(NearDuplicatesTest, MakesThumbnailsOfAnySize) {
  PictureMemory memory;
  const std::vector<uint8_t> white(size_t{100} * 50 * 3, 255);
  EXPECT_EQ(make_thumbnail(ImageView::whole(white.data(), 3, 100, 50, PixelOrder::kInterleaved), memory)[500], 255);
  const std::vector<uint8_t> planes = {30, 60, 90};
  EXPECT_EQ(make_thumbnail(ImageView::whole(planes.data(), 3, 1, 1), memory)[0], 60);
}

TEST(NearDuplicatesTest, EndsWhenItMayNotContinue) {
  std::vector<Thumbnail> thumbnails;
  for (uint32_t i = 0; i < 100; ++i) thumbnails.push_back(Scene(i % 2).draw());
  std::vector<ComparedPicture> pictures;
  for (const auto& thumbnail : thumbnails) pictures.push_back({&thumbnail, 0});
  EXPECT_LE(find_near_duplicates(pictures, 1, [] { return false; }).size(), 100 * 99 / 2);
}

}  // namespace
}  // namespace trainer::data
