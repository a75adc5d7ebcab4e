// Moves the image by a random number of pixels; what comes in at its edges is black.

#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

class RandomShift : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("pixels", pixels_, {.min = 1, .max = kMaxPixels, .unit = "pixels", .doc = "Largest shift.", .required = true});
  }

  // The size of the image stays the same.
  Frame plan(Frame frame) const override { return frame; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const int top = draw_shift(random);
    const int left = draw_shift(random);
    picture.crop(top, left, picture.height(), picture.width());
  }

 private:
  int draw_shift(SampleRandom& random) const {
    return static_cast<int>(random.next_below(static_cast<uint32_t>(2 * pixels_ + 1)) - pixels_);
  }

  int64_t pixels_ = 0;
};

}  // namespace

void add_random_shift(TransformRegistry& registry) {
  add_transform<RandomShift>(registry, "random_shift", "Moves the image to a random place.");
}

}  // namespace trainer::data
