// Masks: labels of the pixels of an image, which transforms move with the pixels.

#include <gmock/gmock.h>

#include "data/data_loader.h"
#include "data/dataset.h"
#include "tests/unit/data/make_pipeline.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kHeight = 23, kWidth = 37;

// Images of random pixels from 1 to 254, which also are the labels.
class PixelsAsLabels : public Dataset {
 public:
  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return 16; }
  Sample read(int64_t index, Scratch& scratch) const override {
    CounterRandom random(3, static_cast<uint64_t>(index));
    scratch.bytes.resize(kHeight * kWidth);
    for (auto& byte : scratch.bytes) byte = static_cast<uint8_t>(1 + random.next_below(254));
    scratch.mask = scratch.bytes;
    return {.image = ImageView::whole(scratch.bytes.data(), 1, kHeight, kWidth),
            .target = {.mask = ImageView::whole(scratch.mask.data(), 1, kHeight, kWidth)}};
  }

  DatasetInfo info_{.shape = {1, kHeight, kWidth}, .num_classes = 255, .has_masks = true};
};

struct Loaded {
  torch::Tensor pixels;  // uint8 [N, height, width]
  torch::Tensor labels;
};

Loaded load(const Dataset& dataset, const std::string& transforms) {
  const auto pipeline = make_pipeline(transforms, dataset.info());
  DataLoader loader(dataset, pipeline, {.batch_size = dataset.size()});
  std::vector<int64_t> indices(static_cast<size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  loader.start_epoch(5, indices);
  const auto* batch = loader.next();
  return {(batch->images.select(1, 0) * 255).round().to(torch::kUInt8), batch->targets.clone()};
}

TEST(Masks, MoveWithThePixels) {
  const PixelsAsLabels dataset;
  for (const char* transforms :
       {"[]", "[random_horizontal_flip: {p: 0.5}, random_vertical_flip: {p: 0.5}]", "[center_crop: {size: 11}]",
        "[random_crop: {size: 31, padding: 9}, random_horizontal_flip]",
        "[random_horizontal_flip, random_crop: {size: [40, 20], padding: 11}, random_vertical_flip, center_crop: {size: 44}]",
        "[random_crop: {size: 31, padding: 9, padding_mode: reflect}, random_horizontal_flip]"}) {
    const auto [pixels, labels] = load(dataset, transforms);
    ASSERT_EQ(labels.scalar_type(), torch::kUInt8);
    // Pixels outside the image are black and have no class.
    const auto is_outside = pixels.eq(0);
    EXPECT_TRUE(torch::equal(labels, pixels.masked_fill(is_outside, kNoClass))) << transforms;
    EXPECT_EQ(is_outside.any().item<bool>(),
              std::string(transforms).find("padding: 9}") != std::string::npos || std::string(transforms).find("44") != std::string::npos)
        << transforms;
  }
}

// Pillow: Image.fromarray(labels).resize(size, Image.NEAREST)
TEST(Masks, AreResizedToTheNearestPixel) {
  struct Ramp : Dataset {
    const DatasetInfo& info() const override { return info_; }
    int64_t size() const override { return 1; }
    Sample read(int64_t, Scratch& scratch) const override {
      scratch.bytes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
      const auto view = ImageView::whole(scratch.bytes.data(), 1, 2, 5);
      return {.image = view, .target = {.mask = view}};
    }
    DatasetInfo info_{.shape = {1, 2, 5}, .num_classes = 10, .has_masks = true};
  };
  const Ramp dataset;
  const auto labels_of = [&](const char* transforms) {
    const auto labels = load(dataset, transforms).labels.contiguous();
    return std::vector<int>(labels.data_ptr<uint8_t>(), labels.data_ptr<uint8_t>() + labels.numel());
  };
  EXPECT_EQ(labels_of("[resize: {size: [3, 3]}]"), (std::vector{0, 2, 4, 5, 7, 9, 5, 7, 9}));
  EXPECT_EQ(labels_of("[resize: {size: [1, 7]}]"), (std::vector{5, 6, 6, 7, 8, 8, 9}));
  EXPECT_EQ(labels_of("[random_horizontal_flip: {p: 1}, resize: {size: [2, 10]}, center_crop: {size: [2, 4]}]"),
            (std::vector{3, 2, 2, 1, 8, 7, 7, 6}));
}

TEST(Masks, ALabelThatIsNoClassIsRefused) {
  PixelsAsLabels dataset;
  dataset.info_.num_classes = 20;
  EXPECT_THAT([&] { load(dataset, "[]"); },
              ThrowsMessage<DataError>(::testing::MatchesRegex("sample 0: its mask has a pixel with the label [0-9]+, but labels must be "
                                                               "in the range 0 to 19, or 255 where there is no class")));
}

TEST(Masks, OfAnotherSizeThanTheImageAreRefused) {
  struct Smaller : PixelsAsLabels {
    Sample read(int64_t index, Scratch& scratch) const override {
      auto sample = PixelsAsLabels::read(index, scratch);
      sample.target.mask = ImageView::whole(scratch.mask.data(), 1, kHeight, kWidth - 1);
      return sample;
    }
  };
  EXPECT_THAT(
      [&] { load(Smaller(), "[]"); },
      ThrowsMessage<DataError>("sample 0: the mask has 1 x 23 x 36 values (channels x height x width), but the image needs 1 x 23 x 37"));
}

TEST(Masks, AreLookedAtWhenAllSamplesAreChecked) {
  PixelsAsLabels dataset;
  const auto problems = [&dataset] { return find_unreadable_samples(dataset, /*num_threads=*/2, [](int64_t) { return true; }); };
  EXPECT_TRUE(problems().empty());
  dataset.info_.num_classes = 20;
  ASSERT_EQ(problems().size(), 16U);
  EXPECT_THAT(problems()[0].reason, HasSubstr("but labels must be in the range 0 to 19, or 255 where there is no class"));
}

TEST(Masks, TransformsThatCannotMoveThemAreRefused) {
  for (const char* name : {"random_rotation: {degrees: 5}", "rand_augment", "auto_augment", "trivial_augment_wide"}) {
    auto info = image_info(3, 32, 32);
    const auto yaml = std::string("[") + name + "]";
    EXPECT_NO_THROW(make_pipeline(yaml, info)) << name;
    info.has_masks = true;
    EXPECT_THAT([&] { make_pipeline(yaml, info); },
                ThrowsMessage<UsageError>(HasSubstr("not their labels in the mask; remove it, because the data set has masks")))
        << name;
  }
}

}  // namespace
}  // namespace trainer::data
