// Positions as torchvision.transforms.CenterCrop computes them (torchvision/transforms/functional.py).

#include <cmath>

#include "data/transforms/size.h"
#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

class CenterCrop : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    size_.describe(keys, "One number: height and width; or [height, width]. Where the image is smaller, black is added.");
  }

  Frame plan(Frame) const override { return {size_.height(), size_.width()}; }

  void apply(Picture& picture, SampleRandom&) const override {
    picture.crop(begin_of(picture.height(), size_.height()), begin_of(picture.width(), size_.width()), size_.height(), size_.width());
  }

 private:
  static int begin_of(int extent, int size) {
    if (size > extent) return -((size - extent) / 2);
    // Python's round: halves to the even number.
    return static_cast<int>(std::nearbyint((extent - size) / 2.0));
  }

  SizeKey size_;
};

}  // namespace

void add_center_crop(TransformRegistry& registry) { add_transform<CenterCrop>(registry, "center_crop", "Keeps the middle of the image."); }

}  // namespace trainer::data
