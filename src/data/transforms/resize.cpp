// Sizes as torchvision.transforms.Resize computes them (torchvision/transforms/functional.py).

#include <algorithm>

#include "data/transforms/size.h"
#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

class Resize : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    size_.describe(keys, "One number: the shorter edge, and the longer one keeps the image's proportions; or [height, width].");
  }

  Frame plan(Frame frame) const override {
    if (!size_.is_one_number()) return {size_.height(), size_.width()};
    if (!frame.is_exact) return {size_.height(), size_.height(), false};
    return {size_of(frame.height, frame), size_of(frame.width, frame)};
  }

  void apply(Picture& picture, SampleRandom&) const override {
    const auto after = plan({picture.height(), picture.width()});
    picture.resize(after.height, after.width);
  }

 private:
  // Of the edge with that length.
  int size_of(int edge, const Frame& frame) const {
    const int shorter = std::min(frame.height, frame.width);
    return static_cast<int>(static_cast<double>(size_.height()) * edge / shorter);
  }

  SizeKey size_;
};

}  // namespace

void add_resize(TransformRegistry& registry) {
  add_transform<Resize>(registry, "resize", "Changes the size, with antialiased bilinear interpolation.");
}

}  // namespace trainer::data
