#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

class RandomHorizontalFlip : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("p", p_, {.min = 0, .max = 1, .doc = "Probability that an image is mirrored."});
    keys.add("alternate", alternate_,
             {.doc = "Mirror each image in every second epoch, so that any two successive epochs show it once as it is and once mirrored; "
                     "p is the probability that it is mirrored in the first epoch."});
  }

  Frame plan(Frame frame) const override { return frame; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const bool mirrors = alternate_ ? random.of_all_epochs().next_bool(p_) != (random.epoch() % 2 == 1) : random.next_bool(p_);
    if (mirrors) picture.mirror();
  }

 private:
  double p_ = 0.5;
  bool alternate_ = false;
};

}  // namespace

void add_random_horizontal_flip(TransformRegistry& registry) {
  add_transform<RandomHorizontalFlip>(registry, "random_horizontal_flip", "Mirrors the image, left for right, with probability p.");
}

}  // namespace trainer::data
