// Ranges and order as torchvision.transforms.ColorJitter draws them (torchvision/transforms/transforms.py).

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "data/operations/color.h"
#include "data/transforms/size.h"
#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

// The range that values of a key mean: around `center` if it is one number.
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
                .doc = "Least and greatest factor; or one number x for [max(0, 1 - x), 1 + x]. Factor 0 gives " + of_zero +
                       ", 1 leaves the image as it is.",
                .may_be_one = true});
      require_number_or_range(keys, name, values);
    };
    add_factor("brightness", brightness_, "black");
    add_factor("contrast", contrast_, "the mean of the grey image everywhere");
    add_factor("saturation", saturation_, "the grey image");
    keys.add("hue", hue_,
             {.min = -0.5,
              .max = 0.5,
              .unit = "turns",
              .doc = "Least and greatest shift around the circle of hues; or one number x for [-x, x].",
              .may_be_one = true});
    require_number_or_range(keys, "hue", hue_);
  }

  Frame plan(Frame frame) const override { return frame; }
  bool uses_color() const override { return true; }

  std::string warning(const Frame&) const override {
    const bool changes =
        std::ranges::any_of(std::array{factors(brightness_), factors(contrast_), factors(saturation_)}, [](const Range& range) {
          return range != Range{1, 1};
        });
    if (changes || range_of(hue_, 0) != Range{}) return "";
    return "it changes nothing; set brightness, contrast, saturation or hue";
  }

  void apply(Picture& picture, SampleRandom& random) const override {
    std::array<int, 4> order = {0, 1, 2, 3};
    for (uint32_t i = 3; i > 0; --i) std::swap(order[i], order[random.next_below(i + 1)]);
    for (const int operation : order) {
      switch (operation) {
        case 0:
          adjust(picture, brightness_, adjust_brightness, random);
          break;
        case 1:
          adjust(picture, contrast_, adjust_contrast, random);
          break;
        case 2:
          adjust(picture, saturation_, adjust_saturation, random);
          break;
        default:
          shift_hue(picture, random);
      }
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

}  // namespace

void add_color_jitter(TransformRegistry& registry) {
  add_transform<ColorJitter>(registry, "color_jitter",
                             "Changes brightness, contrast, saturation and hue by random amounts, in random order. Images of one "
                             "channel have no saturation and no hue.");
}

}  // namespace trainer::data
