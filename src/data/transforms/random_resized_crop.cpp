#include <vector>

#include "data/transforms/size.h"
#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

class RandomResizedCrop : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    size_.describe(keys, "Of the result: one number for height and width, or [height, width].");
    keys.add("scale", scale_, {.min = 0, .max = 1, .min_excluded = true, .doc = "Least and greatest part of the image's area."});
    keys.add("ratio", ratio_, {.min = 0, .min_excluded = true, .doc = "Least and greatest ratio of width to height."});
    require_range(keys, "scale", scale_);
    require_range(keys, "ratio", ratio_);
  }

  Frame plan(Frame) const override { return {size_.height(), size_.width()}; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const auto box =
        draw_resized_crop_box(picture.height(), picture.width(), {scale_.front(), scale_.back()}, {ratio_.front(), ratio_.back()}, random);
    picture.crop(box.top, box.left, box.height, box.width);
    picture.resize(size_.height(), size_.width());
  }

 private:
  SizeKey size_;
  std::vector<double> scale_ = {0.08, 1.0};
  std::vector<double> ratio_ = {3.0 / 4, 4.0 / 3};
};

}  // namespace

void add_random_resized_crop(TransformRegistry& registry) {
  add_transform<RandomResizedCrop>(registry, "random_resized_crop",
                                   "Cuts a part of random size, proportions and place out of the image, and resizes it.");
}

}  // namespace trainer::data
