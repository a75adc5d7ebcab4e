#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

class RandomVerticalFlip : public ImageTransform {
 public:
  void describe(KeyTable& keys) { keys.add("p", p_, {.min = 0, .max = 1, .doc = "Probability that an image is flipped."}); }

  Frame plan(Frame frame) const override { return frame; }

  void apply(Picture& picture, SampleRandom& random) const override {
    if (random.next_bool(p_)) picture.flip();
  }

 private:
  double p_ = 0.5;
};

}  // namespace

void add_random_vertical_flip(TransformRegistry& registry) {
  add_transform<RandomVerticalFlip>(registry, "random_vertical_flip", "Flips the image, top for bottom, with probability p.");
}

}  // namespace trainer::data
