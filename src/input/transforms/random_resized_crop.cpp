// The distribution of torchvision.transforms.RandomResizedCrop (get_params in torchvision/transforms/transforms.py).

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "input/transforms/size.h"
#include "input/transforms/transform.h"

namespace trainer::input {
namespace {

constexpr int kTries = 10;

// The largest box in the middle of the picture whose ratio of width to height is allowed.
Box central_box(const Picture& picture, double lowest_ratio, double highest_ratio) {
  Box box{0, 0, picture.height(), picture.width()};
  const double ratio = static_cast<double>(box.width) / box.height;
  if (ratio < lowest_ratio) {
    box.height = static_cast<int>(std::nearbyint(box.width / lowest_ratio));
  } else if (ratio > highest_ratio) {
    box.width = static_cast<int>(std::nearbyint(box.height * highest_ratio));
  }
  // The picture may be so narrow that a side is rounded to nothing.
  box.height = std::clamp(box.height, 1, picture.height());
  box.width = std::clamp(box.width, 1, picture.width());
  box.top = (picture.height() - box.height) / 2;
  box.left = (picture.width() - box.width) / 2;
  return box;
}

class RandomResizedCrop final : public ImageTransform {
 public:
  void describe(config::KeyTable& keys) override {
    size_.describe(keys, "Of the result: one number for height and width, or [height, width].");
    keys.add("scale", scale_, {.min = 0, .max = 1, .min_excluded = true, .doc = "Least and greatest part of the image's area."});
    keys.add("ratio", ratio_, {.min = 0, .min_excluded = true, .doc = "Least and greatest ratio of width to height."});
    for (const auto& [key, values] : {std::pair{"scale", &scale_}, std::pair{"ratio", &ratio_}}) {
      keys.refuse(key, [values]() -> std::string {
        if (values->size() == 2 && values->front() <= values->back()) return "";
        return fmt::format("[{}] is not a range; give [least, greatest]", fmt::join(*values, ", "));
      });
    }
  }

  Frame plan(Frame) const override { return {size_.height(), size_.width()}; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const auto box = draw_box(picture, random);
    picture.crop(box.top, box.left, box.height, box.width);
    picture.resize(size_.height(), size_.width());
  }

 private:
  Box draw_box(const Picture& picture, SampleRandom& random) const {
    const double area = static_cast<double>(picture.height()) * picture.width();
    for (int i = 0; i < kTries; ++i) {
      const double target_area = area * random.next_between(scale_.front(), scale_.back());
      const double ratio = std::exp(random.next_between(std::log(ratio_.front()), std::log(ratio_.back())));
      const double width = std::nearbyint(std::sqrt(target_area * ratio));
      const double height = std::nearbyint(std::sqrt(target_area / ratio));
      if (width < 1 || width > picture.width() || height < 1 || height > picture.height()) continue;
      Box box{0, 0, static_cast<int>(height), static_cast<int>(width)};
      box.top = static_cast<int>(random.next_below(static_cast<uint32_t>(picture.height() - box.height + 1)));
      box.left = static_cast<int>(random.next_below(static_cast<uint32_t>(picture.width() - box.width + 1)));
      return box;
    }
    return central_box(picture, ratio_.front(), ratio_.back());
  }

  SizeKey size_;
  std::vector<double> scale_ = {0.08, 1.0};
  std::vector<double> ratio_ = {3.0 / 4, 4.0 / 3};
};

}  // namespace

void add_random_resized_crop(TransformRegistry& registry) {
  add_image_transform<RandomResizedCrop>(registry, "random_resized_crop",
                                         "Cuts a part of random size, proportions and place out of the image, and resizes it.");
}

}  // namespace trainer::input
