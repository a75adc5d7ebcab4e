#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "data/operations/operations.h"
#include "data/transforms/transform.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

// Factors and order are drawn as in torchvision.transforms.ColorJitter (torchvision/transforms/transforms.py).

// The range that a key's values specify: a single number x is the range [center - x, center + x].
Range range_of(const std::vector<double>& values, double center) {
  if (values.size() == 1) return {center - values.front(), center + values.front()};
  return {values.front(), values.back()};
}

class ColorJitter : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    const auto add_factor = [&keys](const std::string& name, std::vector<double>& values, const std::string& of_zero) {
      keys.add(name, values,
               {.min = 0,
                .doc = "Minimum and maximum factor, or one number x for [max(0, 1 - x), 1 + x]. Factor 0 results in " + of_zero +
                       ", and factor 1 does not change the image.",
                .may_be_one = true});
      require_range(keys, name, values, /*may_be_number=*/true);
    };
    add_factor("brightness", brightness_, "black");
    add_factor("contrast", contrast_, "the mean grey value everywhere");
    add_factor("saturation", saturation_, "the grey image");
    keys.add("hue", hue_,
             {.min = -0.5,
              .max = 0.5,
              .unit = "turns",
              .doc = "Minimum and maximum shift on the circle of hues, or one number x for [-x, x].",
              .may_be_one = true});
    require_range(keys, "hue", hue_, /*may_be_number=*/true);
  }

  bool uses_color() const override { return true; }

  std::string warning(const Frame&) const override {
    const bool changes =
        std::ranges::any_of(std::array{factors(brightness_), factors(contrast_), factors(saturation_)}, [](const Range& range) {
          return range != Range{1, 1};
        });
    if (changes || range_of(hue_, 0) != Range{}) return "";
    return "it has no effect; set brightness, contrast, saturation or hue";
  }

  void apply(Picture& picture, SampleRandom& random) const override {
    std::array<int, 4> order = {0, 1, 2, 3};
    for (uint32_t i = 3; i > 0; --i) std::swap(order[i], order[random.next_below(i + 1)]);
    for (const int operation : order) {
      if (operation == 0) adjust(picture, brightness_, adjust_brightness, random);
      if (operation == 1) adjust(picture, contrast_, adjust_contrast, random);
      if (operation == 2) adjust(picture, saturation_, adjust_saturation, random);
      if (operation == 3) shift_hue(picture, random);
    }
  }

 private:
  static Range factors(const std::vector<double>& values) {
    const auto range = range_of(values, 1);
    return {std::max(range.least, 0.0), range.greatest};
  }

  static void adjust(Picture& picture, const std::vector<double>& values, void (*operation)(const PixelArray&, float),
                     SampleRandom& random) {
    const auto range = factors(values);
    if (range != Range{1, 1}) operation(picture.pixels(), static_cast<float>(random.next_between(range.least, range.greatest)));
  }

  void shift_hue(Picture& picture, SampleRandom& random) const {
    const auto range = range_of(hue_, 0);
    if (range != Range{}) adjust_hue(picture.pixels(), random.next_between(range.least, range.greatest));
  }

  std::vector<double> brightness_ = {0};
  std::vector<double> contrast_ = {0};
  std::vector<double> saturation_ = {0};
  std::vector<double> hue_ = {0};
};

class RandomGrayscale : public ImageTransform {
 public:
  void describe(KeyTable& keys) { keys.add("p", p_, {.min = 0, .max = 1, .doc = "Probability that an image is converted to grey."}); }

  bool uses_color() const override { return true; }

  void apply(Picture& picture, SampleRandom& random) const override {
    if (random.next_bool(p_)) to_grayscale(picture.pixels());
  }

 private:
  double p_ = 0.1;
};

class GaussianBlur : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("kernel_size", kernel_size_,
             {.min = 1,
              .max = kMaxPixels,
              .unit = "pixels",
              .doc = "One odd number for both width and height, or two odd numbers [width, height].",
              .required = true,
              .may_be_one = true});
    keys.refuse("kernel_size", [this]() -> std::string {
      const bool is_odd = std::ranges::all_of(kernel_size_, [](int64_t size) { return size % 2 == 1; });
      if (is_odd && (kernel_size_.size() == 1 || kernel_size_.size() == 2)) return "";
      return fmt::format("[{}] is not valid; set one odd number, or two odd numbers [width, height]", fmt::join(kernel_size_, ", "));
    });
    keys.add("sigma", sigma_,
             {.min = 0,
              .min_excluded = true,
              .unit = "pixels",
              .doc = "Minimum and maximum standard deviation of the filter, or one number.",
              .may_be_one = true});
    require_range(keys, "sigma", sigma_, /*may_be_number=*/true);
  }

  Frame plan(Frame frame) const override {
    if (kernel_size_.front() / 2 < frame.width && kernel_size_.back() / 2 < frame.height) return frame;
    throw UsageError(
        fmt::format("transform gaussian_blur: half of kernel_size [{}] must be smaller than the image, which has {}; choose a smaller "
                    "kernel_size, or add resize before it",
                    fmt::join(kernel_size_, ", "), to_string(frame)));
  }

  void apply(Picture& picture, SampleRandom& random) const override {
    const BlurShape shape{static_cast<int>(kernel_size_.front()), static_cast<int>(kernel_size_.back()),
                          random.next_between(sigma_.front(), sigma_.back())};
    const auto pixels = picture.pixels();
    gaussian_blur(pixels, shape, picture.blur_memory(), picture.replace_pixels());
  }

 private:
  std::vector<int64_t> kernel_size_;
  std::vector<double> sigma_ = {0.1, 2.0};
};

}  // namespace

void add_color(TransformRegistry& registry) {
  add_transform<ColorJitter>(registry, "color_jitter",
                             "Changes brightness, contrast, saturation and hue by random amounts, in random order. Saturation and hue "
                             "do not apply to images with one channel.");
  add_transform<RandomGrayscale>(registry, "random_grayscale",
                                 "Sets all channels to the grey value with probability p; does not change images with one channel.");
  add_transform<GaussianBlur>(registry, "gaussian_blur", "Blurs the image by a random amount.");
}

}  // namespace trainer::data
