#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "data/transforms/transform.h"
#include "trainer/transform.h"

namespace trainer::data {

void Normalize::describe(KeyTable& keys) {
  keys.add(
      "mean", mean,
      {.doc = "Mean that is subtracted: one value per channel, for pixel values from 0 to 1. Images of signed or floating-point numbers "
              "are not scaled to this range.",
       .required = true});
  keys.add("std", std,
           {.min = 0,
            .min_excluded = true,
            .doc = "Standard deviation by which the difference is divided: one value per channel, for pixel values from 0 to 1.",
            .required = true});
  const auto warn_above_one = [&keys](const char* key, const std::vector<double>& values) {
    keys.warn(key, [&values]() -> std::string {
      if (std::ranges::none_of(values, [](double value) { return value > 1; })) return "";
      return fmt::format("[{}] is too large for pixel values from 0 to 1; if the values are for pixels from 0 to 255, divide them by 255",
                         fmt::join(values, ", "));
    });
  };
  warn_above_one("mean", mean);
  warn_above_one("std", std);
}

namespace {

// Like torchvision.transforms.RandomErasing.
class RandomErasing : public ErasingTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("p", p_, {.min = 0, .max = 1, .doc = "Probability that a part of the image is erased."});
    keys.add("scale", scale_,
             {.min = 0, .max = 1, .doc = "Minimum and maximum size of the erased part, as a fraction of the image's area."});
    keys.add("ratio", ratio_, {.min = 0, .min_excluded = true, .doc = "Minimum and maximum ratio of height to width of the erased part."});
    require_range(keys, "scale", scale_);
    require_range(keys, "ratio", ratio_);
  }

  Box draw_box(int height, int width, SampleRandom& random) const override {
    if (!random.next_bool(p_)) return {};
    return draw_box_in(height, width, {scale_.front(), scale_.back()}, {ratio_.front(), ratio_.back()}, /*is_crop=*/false, random)
        .value_or(Box{});
  }

 private:
  double p_ = 0.5;
  std::vector<double> scale_ = {0.02, 0.33};
  std::vector<double> ratio_ = {0.3, 3.3};
};

// DeVries and Taylor: "Improved Regularization of Convolutional Neural Networks with Cutout" (2017).
class Cutout : public ErasingTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("size", size_, {.min = 1, .max = kMaxPixels, .unit = "pixels", .doc = "Height and width of the square.", .required = true});
  }

  Box draw_box(int height, int width, SampleRandom& random) const override {
    const auto [top, bottom] = draw_side(height, random);
    const auto [left, right] = draw_side(width, random);
    return {top, left, bottom - top, right - left};
  }

 private:
  struct Side {
    int begin;
    int end;
  };

  // The part of an edge of length `extent` that a square around a random pixel covers.
  Side draw_side(int extent, SampleRandom& random) const {
    const int size = static_cast<int>(size_);
    const int begin = static_cast<int>(random.next_below(static_cast<uint32_t>(extent))) - size / 2;
    return {std::max(begin, 0), std::min(begin + size, extent)};
  }

  int64_t size_ = 0;
};

}  // namespace

void add_normalize_and_erase(TransformRegistry& registry) {
  registry.add<Normalize>(
      "normalize", "Subtracts a mean from each channel and divides by a standard deviation. Only random_erasing and cutout may follow it.",
      [](const auto& normalize) { return normalize; });
  add_transform<RandomErasing>(
      registry, "random_erasing",
      "Sets a box of random size, proportions and position to 0 in the network's input, with probability p. Only random_erasing and cutout "
      "may follow it.");
  add_transform<Cutout>(registry, "cutout",
                        "Sets a square around a random pixel, clipped at the image's edges, to 0 in the network's input. Only "
                        "random_erasing and cutout may follow it.");
}

}  // namespace trainer::data
