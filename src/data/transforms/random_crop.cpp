#include <fmt/format.h>

#include <algorithm>

#include "data/transforms/size.h"
#include "data/transforms/transform.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

class RandomCrop : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    size_.describe(keys, "One number: height and width of what is cut out; or [height, width].");
    keys.add("padding", padding_, {.min = 0, .max = kMaxPixels, .unit = "pixels", .doc = "Added on each side before cutting."});
    keys.add_choice("padding_mode", padding_mode_, {{"zero", Padding::kZero}, {"reflect", Padding::kReflect}},
                    {.doc = "Black, or the image mirrored at its edge (which is not repeated)."});
  }

  Frame plan(Frame frame) const override {
    if (padding_mode_ == Padding::kReflect && padding_ >= std::min(frame.height, frame.width)) {
      throw UsageError(
          fmt::format("transform random_crop: padding {} with padding_mode reflect must be smaller than the image, which has {}", padding_,
                      to_string(frame)));
    }
    if (size_.height() > frame.height + 2 * padding_ || size_.width() > frame.width + 2 * padding_) {
      if (!frame.is_exact) {
        throw UsageError(fmt::format(
            "transform random_crop: the images have different sizes, and some may be smaller than {}; put resize before it", size_.text()));
      }
      throw UsageError(
          fmt::format("transform random_crop: size {} does not fit into the image of {} with padding {}; choose a smaller size or more "
                      "padding",
                      size_.text(), to_string(frame), padding_));
    }
    return {size_.height(), size_.width()};
  }

  std::string warning(const Frame& frame) const override {
    if (padding_ < std::min(frame.height, frame.width)) return "";
    return fmt::format("padding {} is not smaller than the image, which has {}; a crop may show little or nothing of it", padding_,
                       to_string(frame));
  }

  void apply(Picture& picture, SampleRandom& random) const override {
    const int top = draw_offset(picture.height(), size_.height(), random);
    const int left = draw_offset(picture.width(), size_.width(), random);
    picture.crop(top, left, size_.height(), size_.width(), padding_mode_);
  }

 private:
  // The start of the crop, relative to an unpadded image of that extent.
  int draw_offset(int extent, int size, CounterRandom& random) const {
    const int64_t num_places = extent + 2 * padding_ - size + 1;
    return static_cast<int>(random.next_below(static_cast<uint32_t>(num_places)) - padding_);
  }

  SizeKey size_;
  int64_t padding_ = 0;
  Padding padding_mode_ = Padding::kZero;
};

}  // namespace

void add_random_crop(TransformRegistry& registry) {
  add_transform<RandomCrop>(registry, "random_crop", "Cuts a part out of the image, with optional padding, at a random place.");
}

}  // namespace trainer::data
