#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/data/make_pipeline.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(PipelineLists, ListsThatCannotBeAppliedAreRefused) {
  const auto info = image_info(3, 32, 24);
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"[random_crop: {size: 33, padding: 4}]",
       "transform random_crop: size 33 does not fit into the image of 32 x 24 pixels with padding 4; choose a smaller size or more "
       "padding"},
      {"[random_crop: {size: 24}, random_crop: {size: 25}]", "size 25 does not fit into the image of 24 x 24 pixels with padding 0"},
      {"[random_crop: {size: 8, padding: 24, padding_mode: reflect}]",
       "transform random_crop: padding 24 with padding_mode reflect must be smaller than the image, which has 32 x 24 pixels; choose less "
       "padding, or add resize before it"},
      {"[normalize: {mean: [0, 0, 0], std: [1, 1, 1]}, random_horizontal_flip]",
       "transform normalize: it is number 1 of 2 in its list, but only transforms that erase, such as random_erasing and cutout, may "
       "follow it; move the other transforms before it"},
      {"[normalize: {mean: [0, 0, 0], std: [1, 1, 1]}, normalize: {mean: [0, 0, 0], std: [1, 1, 1]}]",
       "may follow it; move the other transforms before it"},
      {"[normalize: {mean: [0.5], std: [1, 1]}]",
       "transform normalize: mean has 1 value and std 2, but the images have 3 channels; give one value for each channel"},
      {"[normalize: {mean: [0, 0, 0], std: [1, 1e-60, 1]}]",
       "transform normalize: mean 0 and std 1e-60 result in values outside the range of float32; choose a mean and a std for pixel values "
       "between 0 and 1"},
      {"[resize: {size: [30000, 30000]}, center_crop: {size: 8}]",
       "transform resize: its images of 3 channels and 30000 x 30000 pixels have no or more than 536870912 values; choose other sizes"},
      {"[cutout: {size: 4}, random_horizontal_flip]",
       "transform cutout: it is number 1 of 2 in its list, but only transforms that erase, such as random_erasing and cutout, may follow "
       "it; move the other transforms before it"},
      {"[random_erasing, normalize: {mean: [0, 0, 0], std: [1, 1, 1]}]",
       "transform random_erasing: it is number 1 of 2 in its list, but only transforms that erase, such as random_erasing and cutout, may "
       "follow it; move the other transforms before it"},
      {"[random_crop: {size: 8}, gaussian_blur: {kernel_size: [3, 17]}]",
       "transform gaussian_blur: half of kernel_size [3, 17] must be smaller than the image, which has 8 x 8 pixels; choose a smaller "
       "kernel_size, or add resize before it"},
  };
  for (const auto& [yaml, message] : refused) {
    EXPECT_THAT([&] { make_pipeline(yaml, info); }, ThrowsMessage<UsageError>(HasSubstr(message))) << yaml;
  }
  EXPECT_THAT(
      [&] { make_pipeline("[random_vertical_flip, color_jitter: {hue: 0.1}]", image_info(4, 8, 8)); },
      ThrowsMessage<UsageError>(
          "transform color_jitter: the images have 4 channels, but it can be applied only to images with 1 or 3 channels; remove it"));
  EXPECT_THAT([&] { make_pipeline("[random_horizontal_flip]", {.shape = {8}, .is_image = false}); },
              ThrowsMessage<UsageError>(
                  "transform random_horizontal_flip: this data set does not contain images; leave its list of transforms empty"));
}

TEST(PipelineLists, TheFirstThatCannotBeAppliedIsFoundAndTheWarningsBeforeIt) {
  const auto findings_of = [](const std::string& yaml, const DatasetInfo& info) {
    std::vector<std::string> lines;
    for (const auto& finding : check_transforms(transform_list(yaml), info)) {
      lines.push_back(fmt::format("{} {}: {}", finding.is_warning ? "warning" : "error", *finding.index, finding.text));
    }
    return lines;
  };
  const std::string large =
      " is not smaller than the image, which has 32 x 24 pixels, so a crop may contain little or nothing of the image; choose less padding";
  const std::vector<std::pair<std::string, std::vector<std::string>>> lists = {
      {"[]", {}},
      {"[random_crop: {size: 8, padding: 23}, normalize: {mean: [0, 0, 0], std: [1, 1, 1]}]", {}},
      {"[random_horizontal_flip, random_crop: {size: 8, padding: 24}]", {"warning 1: transform random_crop: padding 24" + large}},
      {"[random_crop: {size: 8, padding: 40}, random_horizontal_flip, random_crop: {size: 9}]",
       {"warning 0: transform random_crop: padding 40" + large,
        "error 2: transform random_crop: size 9 does not fit into the image of 8 x 8 pixels with padding 0; choose a smaller size or more "
        "padding"}},
      {"[color_jitter]", {"warning 0: transform color_jitter: it has no effect; set brightness, contrast, saturation or hue"}},
      {"[random_crop: {size: 33}, normalize: {mean: [0], std: [1]}]",
       {"error 0: transform random_crop: size 33 does not fit into the image of 32 x 24 pixels with padding 0; choose a smaller size or "
        "more padding"}},
      {"[random_crop: {size: 8, padding: 24, padding_mode: reflect}]",
       {"error 0: transform random_crop: padding 24 with padding_mode reflect must be smaller than the image, which has 32 x 24 pixels; "
        "choose less padding, or add resize before it"}},
      {"[pad: {padding: [0, 32, 0, 0], padding_mode: reflect}]",
       {"error 0: transform pad: padding [0, 32, 0, 0] with padding_mode reflect must be smaller than the image, which has 32 x 24 "
        "pixels; choose less padding, or add resize before it"}},
      {"[pad: {padding: 30000}, pad: {padding: 3000}]",
       {"error 0: transform pad: the image would have 60032 x 60024 pixels, which is more than 32768 in one direction; choose less "
        "padding"}},
      {"[random_horizontal_flip, normalize: {mean: [0], std: [1]}]",
       {"error 1: transform normalize: mean has 1 value and std 1, but the images have 3 channels; give one value for each channel"}},
      {"[normalize: {mean: [0, 0, 0], std: [1, 1, 1]}, random_horizontal_flip]",
       {"error 0: transform normalize: it is number 1 of 2 in its list, but only transforms that erase, such as random_erasing and cutout, "
        "may follow it; move the other transforms before it"}},
  };
  for (const auto& [yaml, lines] : lists) EXPECT_EQ(findings_of(yaml, image_info(3, 32, 24)), lines) << yaml;
  const DatasetInfo vectors{.shape = {8}, .is_image = false};
  EXPECT_EQ(findings_of("[]", vectors), std::vector<std::string>{});
  EXPECT_EQ(findings_of("[random_horizontal_flip, random_crop: {size: 8}]", vectors),
            std::vector<std::string>{
                "error 0: transform random_horizontal_flip: this data set does not contain images; leave its list of transforms empty"});
}

TEST(PipelineLists, KeysAreChecked) {
  for (const char* yaml : {"[random_crop]",
                           "[random_crop: {size: 0}]",
                           "[random_crop: {size: 4, padding: -1}]",
                           "[random_crop: {size: 4, padding_mode: edge}]",
                           "[random_horizontal_flip: {p: 1.5}]",
                           "[normalize: {mean: [0]}]",
                           "[normalize: {mean: [0], std: [0]}]",
                           "[no_such_transform]",
                           "[resize: {size: [1, 2, 3]}]",
                           "[resize: {size: []}]",
                           "[resize]",
                           "[resize: {size: 4, longest: 4}]",
                           "[resize: {longest: 0}]",
                           "[resize: {size: 4, interpolation: box}]",
                           "[letterbox: {fill: 0}]",
                           "[letterbox: {size: 4, fill: 256}]",
                           "[pad]",
                           "[pad: {padding: [1, 2]}]",
                           "[pad: {padding: 1, padding_mode: edge}]",
                           "[random_vertical_flip: {p: 2}]",
                           "[random_grayscale: {p: -1}]",
                           "[random_rotation]",
                           "[random_rotation: {degrees: -5}]",
                           "[random_rotation: {degrees: [5, 1]}]",
                           "[random_rotation: {degrees: [1, 2, 3]}]",
                           "[color_jitter: {brightness: [2, 1]}]",
                           "[color_jitter: {saturation: -0.5}]",
                           "[color_jitter: {contrast: []}]",
                           "[color_jitter: {hue: -0.1}]",
                           "[color_jitter: {hue: 0.6}]",
                           "[gaussian_blur]",
                           "[gaussian_blur: {kernel_size: 4}]",
                           "[gaussian_blur: {kernel_size: [3, 3, 3]}]",
                           "[gaussian_blur: {kernel_size: 3, sigma: 0}]",
                           "[gaussian_blur: {kernel_size: 3, sigma: [2, 1]}]",
                           "[auto_augment: {policy: mnist}]",
                           "[rand_augment: {num_ops: 0}]",
                           "[rand_augment: {magnitude: -1}]",
                           "[rand_augment: {magnitude: 31}]",
                           "[rand_augment: {magnitude: 5, num_magnitude_bins: 5}]",
                           "[rand_augment: {magnitude: 0, num_magnitude_bins: 1}]",
                           "[trivial_augment_wide: {num_magnitude_bins: 1}]",
                           "[random_erasing: {scale: [0.5, 0.1]}]",
                           "[random_erasing: {ratio: [0, 1]}]",
                           "[random_erasing: {ratio: 1}]",
                           "[cutout]",
                           "[cutout: {size: 0}]",
                           "[random_resized_crop: {size: 4, scale: [0.5]}]",
                           "[random_resized_crop: {size: 4, ratio: [2, 1]}]"}) {
    EXPECT_THROW(transform_list(yaml), UsageError) << yaml;
  }
}

}  // namespace
}  // namespace trainer::data
