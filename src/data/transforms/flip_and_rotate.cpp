#include <vector>

#include "data/transforms/augmentation.h"
#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

class RandomHorizontalFlip : public ImageTransform, public RandomHorizontalFlipOptions {
 public:
  void describe(KeyTable& keys) {
    keys.add("p", p, {.min = 0, .max = 1, .doc = "Probability that an image is mirrored."});
    keys.add(
        "alternate", alternate,
        {.doc = "Mirror each image in every second epoch: of two successive epochs, one uses the original image and the other one uses the "
                "mirrored image. p is the probability that the first epoch uses the mirrored image."});
  }

  bool fits_all_depths() const override { return true; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const bool mirrors = alternate ? random.of_all_epochs().next_bool(p) != (random.epoch() % 2 == 1) : random.next_bool(p);
    if (mirrors) picture.mirror();
  }
};

class RandomVerticalFlip : public ImageTransform, public RandomVerticalFlipOptions {
 public:
  void describe(KeyTable& keys) { keys.add("p", p, {.min = 0, .max = 1, .doc = "Probability that an image is flipped."}); }

  bool fits_all_depths() const override { return true; }

  void apply(Picture& picture, SampleRandom& random) const override {
    if (random.next_bool(p)) picture.flip();
  }
};

class RandomRotation : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("degrees", degrees_,
             {.min = -360,
              .max = 360,
              .unit = "degrees",
              .doc = "Minimum and maximum angle, counter-clockwise, or one number x for [-x, x].",
              .required = true,
              .may_be_one = true});
    require_range(keys, "degrees", degrees_, /*may_be_number=*/true);
  }

  bool moves_pixels() const override { return true; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const double least = degrees_.size() == 1 ? -degrees_.front() : degrees_.front();
    rotate(picture, random.next_between(least, degrees_.back()));
  }

 private:
  std::vector<double> degrees_;
};

}  // namespace

void add_flip_and_rotate(TransformRegistry& registry) {
  add_transform<RandomHorizontalFlip>(registry, "random_horizontal_flip", "Mirrors the image horizontally with probability p.");
  add_transform<RandomVerticalFlip>(registry, "random_vertical_flip", "Flips the image vertically with probability p.");
  add_transform<RandomRotation>(registry, "random_rotation",
                                "Rotates the image about its middle by a random angle, without interpolation. Its size does not "
                                "change, and pixels from outside are black.");
}

}  // namespace trainer::data
