#include "data/operations/color.h"
#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

class RandomGrayscale : public ImageTransform {
 public:
  void describe(KeyTable& keys) { keys.add("p", p_, {.min = 0, .max = 1, .doc = "Probability that an image loses its colours."}); }

  Frame plan(Frame frame) const override { return frame; }
  bool uses_color() const override { return true; }

  void apply(Picture& picture, SampleRandom& random) const override {
    if (random.next_bool(p_)) to_grayscale(picture.pixels());
  }

 private:
  double p_ = 0.1;
};

}  // namespace

void add_random_grayscale(TransformRegistry& registry) {
  add_transform<RandomGrayscale>(registry, "random_grayscale",
                                 "Sets all channels to the grey value with probability p; images of one channel stay as they are.");
}

}  // namespace trainer::data
