#include "data/pipeline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/image_write.h"
#include "tests/unit/data/make_pipeline.h"
#include "trainer/error.h"
#include "trainer/random.h"
#include "trainer/torch.h"

namespace trainer::data {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A planar image that owns its pixels, for reference implementations that actually pad, crop and mirror.
struct StoredImage {
  int channels;
  int height;
  int width;
  std::vector<uint8_t> pixels;

  uint8_t at(int c, int y, int x) const { return pixels[static_cast<size_t>((c * height + y) * width + x)]; }
  Sample sample() const {
    Sample sample;
    sample.image = ImageView::whole(pixels.data(), channels, height, width);
    return sample;
  }
};

StoredImage random_image(int channels, int height, int width) {
  CounterRandom random(5, 5);
  StoredImage image{channels, height, width, {}};
  for (int i = 0; i < channels * height * width; ++i) image.pixels.push_back(static_cast<uint8_t>(random.next_below(256)));
  return image;
}

// An image of that size with the values `pixel(c, y, x)`.
template <class Pixel>
StoredImage build_image(int channels, int height, int width, Pixel pixel) {
  StoredImage image{channels, height, width, {}};
  for (int c = 0; c < channels; ++c) {
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) image.pixels.push_back(static_cast<uint8_t>(pixel(c, y, x)));
    }
  }
  return image;
}

StoredImage pad_image(const StoredImage& from, int padding, Padding mode) {
  const auto source = [&](int at, int size) { return at < 0 ? -at : at >= size ? 2 * size - 2 - at : at; };
  return build_image(from.channels, from.height + 2 * padding, from.width + 2 * padding, [&](int c, int y, int x) -> int {
    const int row = y - padding;
    const int column = x - padding;
    const bool inside = row >= 0 && row < from.height && column >= 0 && column < from.width;
    if (mode == Padding::kZero) return inside ? from.at(c, row, column) : 0;
    return from.at(c, source(row, from.height), source(column, from.width));
  });
}

StoredImage crop_image(const StoredImage& from, int size, int padding, Padding mode, CounterRandom& random) {
  const auto padded = pad_image(from, padding, mode);
  const int top = static_cast<int>(random.next_below(static_cast<uint32_t>(padded.height - size + 1)));
  const int left = static_cast<int>(random.next_below(static_cast<uint32_t>(padded.width - size + 1)));
  return build_image(from.channels, size, size, [&](int c, int y, int x) { return padded.at(c, top + y, left + x); });
}

StoredImage flip_image(const StoredImage& from, double p, CounterRandom& random) {
  if (!random.next_bool(p)) return from;
  return build_image(from.channels, from.height, from.width, [&](int c, int y, int x) { return from.at(c, y, from.width - 1 - x); });
}

// The random numbers of a sample in its epoch.
CounterRandom stream_of(uint64_t seed, int64_t epoch, int64_t index) {
  return {mix_seed(seed, static_cast<uint64_t>(epoch)), static_cast<uint64_t>(index)};
}

// Pixel values that the pipeline writes in float64 without normalisation.
std::vector<uint8_t> written_pixels(const Pipeline& pipeline, const Sample& sample, const EpochSeeds& seeds, int64_t index) {
  std::vector<double> out(static_cast<size_t>(c10::multiply_integers(pipeline.output_shape())));
  PictureMemory memory;
  pipeline.write(sample, seeds, {index}, memory, out.data());
  std::vector<uint8_t> pixels;
  for (const double value : out) pixels.push_back(static_cast<uint8_t>(std::lround(value * 255.0)));
  return pixels;
}

struct Composition {
  const char* yaml;
  std::function<StoredImage(const StoredImage&, CounterRandom&)> reference;
};

TEST(Pipeline, ListsEqualPaddingCroppingAndMirroringOneByOne) {
  const auto zero = Padding::kZero;
  const auto reflect = Padding::kReflect;
  const std::vector<Composition> compositions = {
      {"[random_crop: {size: 6, padding: 4}]", [=](const auto& x, auto& random) { return crop_image(x, 6, 4, zero, random); }},
      {"[random_crop: {size: 9, padding: 4, padding_mode: reflect}]",
       [=](const auto& x, auto& random) { return crop_image(x, 9, 4, reflect, random); }},
      {"[random_crop: {size: 3, padding: 20}]", [=](const auto& x, auto& random) { return crop_image(x, 3, 20, zero, random); }},
      {"[random_crop: {size: 1}]", [=](const auto& x, auto& random) { return crop_image(x, 1, 0, zero, random); }},
      {"[random_horizontal_flip, random_crop: {size: 7, padding: 3}]",
       [=](const auto& x, auto& random) { return crop_image(flip_image(x, 0.5, random), 7, 3, zero, random); }},
      {"[random_crop: {size: 7, padding: 3}, random_horizontal_flip]",
       [=](const auto& x, auto& random) { return flip_image(crop_image(x, 7, 3, zero, random), 0.5, random); }},
      {"[random_horizontal_flip: {p: 0.3}, random_crop: {size: 8, padding: 4, padding_mode: reflect}, random_horizontal_flip: {p: 0.9}]",
       [=](const auto& x, auto& random) { return flip_image(crop_image(flip_image(x, 0.3, random), 8, 4, reflect, random), 0.9, random); }},
      {"[random_crop: {size: 8, padding: 3}, random_horizontal_flip, random_crop: {size: 5}]",
       [=](const auto& x, auto& random) {
         return crop_image(flip_image(crop_image(x, 8, 3, zero, random), 0.5, random), 5, 0, zero, random);
       }},
      {"[random_crop: {size: 9, padding: 4, padding_mode: reflect}, random_crop: {size: 4, padding_mode: zero}]",
       [=](const auto& x, auto& random) { return crop_image(crop_image(x, 9, 4, reflect, random), 4, 0, zero, random); }},
  };
  const auto image = random_image(3, 5, 7);
  for (const auto& [yaml, reference] : compositions) {
    const auto pipeline = make_pipeline(yaml, image_info(3, 5, 7));
    for (int64_t index = 0; index < 100; ++index) {
      const int64_t epoch = index % 7;
      auto random = stream_of(3, epoch, index);
      const auto expected = reference(image, random);
      EXPECT_EQ(pipeline.output_shape(), (std::vector<int64_t>{3, expected.height, expected.width}));
      ASSERT_EQ(written_pixels(pipeline, image.sample(), {3, epoch}, index), expected.pixels) << yaml << " sample " << index;
    }
  }
}

// Each transform of the registry, with options that it accepts. Add new transforms here.
TEST(Pipeline, EachOfTheRegistryIsAppliedToAnImage) {
  PictureMemory memory;
  const std::map<std::string, std::string> examples = {
      {"resize", "[resize: {size: 8}]"},
      {"letterbox", "[letterbox: {size: [4, 9], fill: 114}]"},
      {"pad", "[pad: {padding: [1, 2, 3, 4]}]"},
      {"center_crop", "[center_crop: {size: [4, 9]}]"},
      {"random_crop", "[random_crop: {size: 4, padding: 2}]"},
      {"random_resized_crop", "[random_resized_crop: {size: 4}]"},
      {"random_horizontal_flip", "[random_horizontal_flip: {p: 1}]"},
      {"random_vertical_flip", "[random_vertical_flip: {p: 1}]"},
      {"random_rotation", "[random_rotation: {degrees: [20, 160]}]"},
      {"color_jitter", "[color_jitter: {brightness: 0.4, contrast: 0.4, saturation: [0.1, 0.5], hue: 0.1}]"},
      {"random_grayscale", "[random_grayscale: {p: 1}]"},
      {"gaussian_blur", "[gaussian_blur: {kernel_size: [3, 5], sigma: [1, 2]}]"},
      {"auto_augment", "[auto_augment: {policy: cifar10}]"},
      {"rand_augment", "[rand_augment: {magnitude: 15}]"},
      {"trivial_augment_wide", "[trivial_augment_wide: {num_magnitude_bins: 20}]"},
      {"normalize", "[normalize: {mean: [0.5, 0.4, 0.3], std: [0.2, 0.25, 0.3]}]"},
      {"random_erasing", "[random_erasing: {p: 1}]"},
      {"cutout", "[cutout: {size: 4}]"},
  };
  const auto image = random_image(3, 5, 7);
  std::vector<double> plain(3 * 5 * 7);
  make_pipeline("[]", image_info(3, 5, 7)).write(image.sample(), {3, 0}, {1}, memory, plain.data());
  for (const auto& name : transform_registry().names()) {
    ASSERT_TRUE(examples.contains(name)) << name << " has no example in this test";
    const auto pipeline = make_pipeline(examples.at(name), image_info(3, 5, 7));
    std::vector<double> out(static_cast<size_t>(c10::multiply_integers(pipeline.output_shape())), std::nan(""));
    pipeline.write(image.sample(), {3, 0}, {1}, memory, out.data());
    EXPECT_NE(out, plain) << name;
    EXPECT_TRUE(std::ranges::all_of(out, [](double value) { return std::isfinite(value); })) << name;
  }
}

TEST(Pipeline, EveryCropPositionIsEquallyFrequent) {
  constexpr int kDraws = 12000;
  const StoredImage image{1, 2, 2, {10, 20, 30, 40}};
  const auto pipeline = make_pipeline("[random_crop: {size: 2, padding: 1}]", image_info(1, 2, 2));
  std::map<std::vector<uint8_t>, int> counts;
  for (int64_t i = 0; i < kDraws; ++i) ++counts[written_pixels(pipeline, image.sample(), {1, 0}, i)];
  ASSERT_EQ(counts.size(), 9U);
  double chi_squared = 0;
  for (const auto& [pixels, count] : counts) chi_squared += std::pow(count - kDraws / 9.0, 2) / (kDraws / 9.0);
  EXPECT_LT(chi_squared, 26.1);  // exceeded once in 1000 with 8 degrees of freedom
}

TEST(Pipeline, FlipsWithTheGivenProbability) {
  constexpr int kDraws = 10000;
  const StoredImage image{1, 1, 2, {0, 255}};
  for (const double p : {0.0, 0.2, 0.5, 1.0}) {
    const auto pipeline = make_pipeline(fmt::format("[random_horizontal_flip: {{p: {}}}]", p), image_info(1, 1, 2));
    int flips = 0;
    for (int64_t i = 0; i < kDraws; ++i) {
      if (written_pixels(pipeline, image.sample(), {1, 0}, i)[0] == 255) ++flips;
    }
    EXPECT_NEAR(flips, p * kDraws, 3.3 * std::sqrt(p * (1 - p) * kDraws)) << p;
  }
}

TEST(Pipeline, AnAlternatingFlipMirrorsEachImageInEverySecondEpoch) {
  constexpr int kImages = 4000;
  const StoredImage image{1, 1, 2, {0, 255}};
  for (const double p : {0.0, 0.2, 0.5, 1.0}) {
    const auto pipeline = make_pipeline(fmt::format("[random_horizontal_flip: {{p: {}, alternate: true}}]", p), image_info(1, 1, 2));
    int flips = 0;
    for (int64_t i = 0; i < kImages; ++i) {
      const auto is_mirrored = [&](int64_t epoch) { return written_pixels(pipeline, image.sample(), {1, epoch}, i)[0] == 255; };
      const bool first = is_mirrored(0);
      if (first) ++flips;
      for (int64_t epoch = 1; epoch < 5; ++epoch) EXPECT_EQ(is_mirrored(epoch), first != (epoch % 2 == 1)) << "image " << i;
    }
    EXPECT_NEAR(flips, p * kImages, 3.3 * std::sqrt(p * (1 - p) * kImages)) << p;
  }
}

TEST(Pipeline, AnAlternatingFlipDoesNotChangeTheNumbersOfOtherTransforms) {
  const auto image = random_image(3, 5, 7);
  const std::string flip = "random_horizontal_flip: {p: 0, alternate: true}";
  const std::string crop = "random_crop: {size: 7, padding: 3}";
  const auto flip_first = make_pipeline(fmt::format("[{}, {}]", flip, crop), image_info(3, 5, 7));
  const auto crop_first = make_pipeline(fmt::format("[{}, {}]", crop, flip), image_info(3, 5, 7));
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t epoch = i % 4;
    const double mirrored = epoch % 2 == 1 ? 1 : 0;
    CounterRandom unused(0, 0);
    auto random = stream_of(3, epoch, i);
    EXPECT_EQ(written_pixels(flip_first, image.sample(), {3, epoch}, i),
              crop_image(flip_image(image, mirrored, unused), 7, 3, Padding::kZero, random).pixels);
    random = stream_of(3, epoch, i);
    EXPECT_EQ(written_pixels(crop_first, image.sample(), {3, epoch}, i),
              flip_image(crop_image(image, 7, 3, Padding::kZero, random), mirrored, unused).pixels);
  }
}

TEST(Pipeline, NormalizesInEachLayout) {
  PictureMemory memory;
  const auto image = random_image(3, 4, 6);
  const torch::Tensor pixels = torch::from_blob(const_cast<uint8_t*>(image.pixels.data()), {3, 4, 6}, torch::kUInt8);
  const auto channel = [](std::vector<double> values) { return torch::tensor(values, torch::kFloat64).view({3, 1, 1}); };
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const auto precision = dtype == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
    const torch::Tensor expected =
        ((pixels.to(precision) / 255 - channel({0.5, 0.4, 0.3}).to(precision)) / channel({0.2, 0.25, 0.3}).to(precision)).to(dtype);
    for (const bool channels_last : {false, true}) {
      const auto pipeline =
          make_pipeline("[normalize: {mean: [0.5, 0.4, 0.3], std: [0.2, 0.25, 0.3]}]", image_info(3, 4, 6), {dtype, channels_last});
      torch::Tensor out = torch::empty({1, 3, 4, 6}, torch::TensorOptions(dtype),
                                       channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
      pipeline.write(image.sample(), {0, 0}, {0}, memory, out.data_ptr());
      EXPECT_TRUE(torch::equal(out[0], expected)) << dtype << " channels_last " << channels_last;
    }
  }
}

TEST(Pipeline, WithoutImagesValuesAreConvertedAndReordered) {
  PictureMemory memory;
  DatasetInfo info{.shape = {2, 1, 3}, .is_image = false, .num_classes = 2};
  const std::vector<float> values = {1.0F, 1.0F + 0x1p-8F, -3.5F, 4.0F, 5.0F, 0.1F};
  Sample sample;
  sample.values = values;
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    for (const bool channels_last : {false, true}) {
      const Pipeline pipeline({}, info, {dtype, channels_last});
      EXPECT_EQ(pipeline.output_shape(), info.shape);
      torch::Tensor out = torch::empty({1, 2, 1, 3}, torch::TensorOptions(dtype),
                                       channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
      pipeline.write(sample, {0, 0}, {0}, memory, out.data_ptr());
      EXPECT_TRUE(torch::equal(out[0], torch::tensor(values).view({2, 1, 3}).to(dtype))) << dtype << " channels_last " << channels_last;
    }
  }
}

TEST(Pipeline, FeatureVectorsIgnoreTheMemoryOrder) {
  PictureMemory memory;
  const std::vector<float> values = {1, 2, 3, 4};
  Sample sample;
  sample.values = values;
  const Pipeline pipeline({}, {.shape = {4}, .is_image = false}, {torch::kFloat32, true});
  std::vector<float> out(4);
  pipeline.write(sample, {0, 0}, {0}, memory, out.data());
  EXPECT_EQ(out, values);
}

TEST(Pipeline, ImagesOfDifferentSizesMustBecomeEqual) {
  const auto info = image_info(3, kAnySize, kAnySize);
  const std::string sizes = "the images have different sizes after this list, and a batch needs one size; add center_crop, ";
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"[]", sizes},
      {"[resize: {size: 8}, random_horizontal_flip]", sizes},
      {"[random_crop: {size: 4}]",
       "transform random_crop: the images have different sizes, and some may be smaller than 4; add resize before it"},
      {"[resize: {size: 8}, random_crop: {size: [8, 9]}]",
       "the images have different sizes, and some may be smaller than 8 x 9; add resize before it"},
      {"[resize: {size: 8}, random_crop: {size: 8, padding: 8, padding_mode: reflect}]",
       "padding 8 with padding_mode reflect must be smaller than the image, which has at least 8 x 8 pixels"},
  };
  for (const auto& [yaml, message] : refused) {
    EXPECT_THAT([&] { make_pipeline(yaml, info); }, ThrowsMessage<UsageError>(HasSubstr(message))) << yaml;
  }
  for (const char* yaml :
       {"[resize: {size: [4, 5]}]", "[center_crop: {size: [4, 5]}]", "[random_resized_crop: {size: [4, 5]}]",
        "[resize: {size: 8}, random_crop: {size: [4, 5]}]", "[resize: {size: 4}, random_crop: {size: [4, 5], padding: 1}]"}) {
    const auto pipeline = make_pipeline(yaml, info);
    EXPECT_EQ(pipeline.output_shape(), (std::vector<int64_t>{3, 4, 5})) << yaml;
    for (const auto& [height, width] : std::vector<std::pair<int, int>>{{1, 1}, {3, 40}, {4, 5}, {37, 2}}) {
      for (int64_t index = 0; index < 5; ++index) {
        EXPECT_EQ(written_pixels(pipeline, random_image(3, height, width).sample(), {0, 0}, index).size(), 60U) << yaml;
      }
    }
  }
}

TEST(Pipeline, ACropBeyondAnEarlierCropDoesNotShowWhatThatCutOff) {
  const auto image = build_image(1, 8, 8, [](int, int, int) { return 200; });
  const auto pixels =
      written_pixels(make_pipeline("[center_crop: {size: 2}, center_crop: {size: 4}]", image_info(1, 8, 8)), image.sample(), {0, 0}, 0);
  EXPECT_EQ(pixels, (std::vector<uint8_t>{0, 0, 0, 0, 0, 200, 200, 0, 0, 200, 200, 0, 0, 0, 0, 0}));
}

TEST(Pipeline, RefusesASampleThatDoesNotFitTheDataset) {
  PictureMemory memory;
  const auto image = random_image(3, 4, 4);
  std::vector<double> out(3 * 5 * 5);
  const EpochSeeds seeds(0, 0);
  EXPECT_THAT(
      [&] { make_pipeline("[]", image_info(3, 5, 5)).write(image.sample(), seeds, {0}, memory, out.data()); },
      ThrowsMessage<c10::Error>(HasSubstr("an image of 3 channels and 4 x 4 pixels does not fit the shape of the data set, [3, 5, 5]")));
  EXPECT_THAT([&] { Pipeline({}, {.shape = {8}, .is_image = false}, {}).write(Sample{}, seeds, {0}, memory, out.data()); },
              ThrowsMessage<c10::Error>(HasSubstr("the sample has 0 values, but the data set has 8")));
}

}  // namespace
}  // namespace trainer::data
