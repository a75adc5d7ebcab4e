// What own training loops and tests of own transforms use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/data/counting_images.h"
#include "tests/unit/data/make_pipeline.h"
#include "trainer/data.h"
#include "trainer/error.h"
#include "trainer/transform.h"

namespace trainer::data::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Batches, EqualThoseOfTheLoader) {
  const auto images = std::make_shared<CountingImages>(10);
  const auto transforms = transform_list("[random_crop: {size: 8, padding: 2}, random_horizontal_flip]");
  DistributedSampler sampler(10, 1, 2, {.seed = 3});
  sampler.set_epoch(4);
  sampler.reset();
  const auto order = sampler.next(10).value();
  DataLoader loader(*images, Pipeline(transforms, images->info(), {}), {.batch_size = 3, .seed = 7});
  loader.start_epoch(4, {order.begin(), order.end()});
  const auto expected = load_all(loader);
  for (const int64_t workers : {0, 2}) {
    Batches batches(images, transforms, 3, 7, {.num_workers = workers});
    batches.start(sampler);
    std::vector<torch::data::Example<>> all;
    while (auto batch = batches.next()) all.push_back(std::move(*batch));
    ASSERT_EQ(all.size(), 2U);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(all[i].data.equal(expected.images[i]));
      EXPECT_TRUE(all[i].target.equal(expected.targets[i]));
    }
    sampler.skip(4);
    batches.start(sampler);
    EXPECT_EQ(batches.next()->target.item<int64_t>(), static_cast<int64_t>(order[4]));
    EXPECT_FALSE(batches.next());
  }
}

TEST(Batches, RefuseWhatDoesNotFit) {
  const auto images = std::make_shared<CountingImages>(10);
  EXPECT_THROW(Batches(images, transform_list("[normalize: {mean: [0.5, 0.5], std: [1, 1]}]"), 3), UsageError);
  EXPECT_THROW(Batches(images, {}, 0), c10::Error);
  EXPECT_THROW(Batches(nullptr, {}, 1), c10::Error);
  Batches batches(images, {}, 3);
  DistributedSampler of_others(12, 0, 1);
  EXPECT_THAT([&] { batches.start(of_others); },
              ThrowsMessage<c10::Error>(HasSubstr("the sampler was made for more samples than the 10 of the data set")));
}

// Inverts each image with a probability of one half.
struct Invert : ImageTransform {
  Frame plan(Frame frame) const override { return frame; }
  void apply(Picture& picture, SampleRandom& random) const override {
    const auto pixels = picture.pixels();
    if (random.next_bool(0.5))
      std::transform(pixels.data, pixels.data + pixels.num_bytes(), pixels.data, [](uint8_t pixel) { return 255 - pixel; });
  }
};

TEST(MakePictureMemory, LetsTestsApplyATransform) {
  const std::vector<uint8_t> stored = {0, 1, 2, 3};
  const auto memory = make_picture_memory();
  const EpochSeeds seeds(1, 0);
  int64_t num_inverted = 0;
  for (int64_t index = 0; index < 20; ++index) {
    Picture picture(ImageView::whole(stored.data(), 1, 2, 2), *memory);
    SampleRandom random(seeds, {.index = index});
    Invert().apply(picture, random);
    const auto* pixels = picture.pixels().data;
    const bool is_inverted = pixels[0] == 255;
    num_inverted += is_inverted ? 1 : 0;
    const std::vector<uint8_t> inverted = {255, 254, 253, 252};
    EXPECT_EQ(std::vector<uint8_t>(pixels, pixels + 4), is_inverted ? inverted : stored);
  }
  EXPECT_GT(num_inverted, 3);
  EXPECT_LT(num_inverted, 17);
}

}  // namespace
}  // namespace trainer::data::test
