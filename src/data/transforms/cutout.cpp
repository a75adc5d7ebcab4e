// DeVries and Taylor: "Improved Regularization of Convolutional Neural Networks with Cutout" (2017).

#include <algorithm>

#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

class Cutout : public ErasingTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("size", size_, {.min = 1, .max = kMaxPixels, .unit = "pixels", .doc = "Height and width of the square.", .required = true});
  }

  Box draw_box(int height, int width, SampleRandom& random) const override {
    const auto [top, bottom] = draw_side(height, random);
    const auto [left, right] = draw_side(width, random);
    return {top, left, bottom - top, right - left};
  }

 private:
  struct Side {
    int begin;
    int end;
  };

  // The part of an edge of that length which a square around a random pixel covers.
  Side draw_side(int extent, SampleRandom& random) const {
    const int size = static_cast<int>(size_);
    const int begin = static_cast<int>(random.next_below(static_cast<uint32_t>(extent))) - size / 2;
    return {std::max(begin, 0), std::min(begin + size, extent)};
  }

  int64_t size_ = 0;
};

}  // namespace

void add_cutout(TransformRegistry& registry) {
  add_transform<Cutout>(registry, "cutout",
                        "Sets a square around a random pixel to 0 in what the network sees, cut off at the image's edges; after "
                        "normalize.");
}

}  // namespace trainer::data
