// A transform that moves the image by a random number of pixels; the pixels that enter at the edges are black.

#include <trainer/registry.h>

namespace {

namespace data = trainer::data;

class RandomShift : public data::ImageTransform {
 public:
  void describe(trainer::KeyTable& keys) {
    keys.add("pixels", pixels_, {.min = 1, .max = data::kMaxPixels, .unit = "pixels", .doc = "Largest shift.", .required = true});
  }

  // The size of the image stays the same.
  data::Frame plan(data::Frame frame) const override { return frame; }

  void apply(data::Picture& picture, data::SampleRandom& random) const override {
    const int top = draw_shift(random);
    const int left = draw_shift(random);
    picture.crop(top, left, picture.height(), picture.width());
  }

 private:
  int draw_shift(data::SampleRandom& random) const {
    return static_cast<int>(random.next_below(static_cast<uint32_t>(2 * pixels_ + 1)) - pixels_);
  }

  int64_t pixels_ = 0;
};

}  // namespace

void add_random_shift() { trainer::register_transform<RandomShift>("random_shift", "Moves the image to a random place."); }
