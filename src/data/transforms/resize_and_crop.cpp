#include "data/transforms/resize_and_crop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "trainer/error.h"

namespace trainer::data {
namespace {

void describe_interpolation(KeyTable& keys, Interpolation& interpolation) {
  keys.add_choice("interpolation", interpolation, {{"bilinear", Interpolation::kBilinear}, {"bicubic", Interpolation::kBicubic}},
                  {.doc = "How pixels between those of the image are computed; antialiased, as Pillow does it."});
}

// The first pixel of the middle `size` pixels of an edge.
int begin_of_middle(int extent, int size) {
  if (size > extent) return -((size - extent) / 2);
  // Python's round: halves to the even number.
  return static_cast<int>(std::nearbyint((extent - size) / 2.0));
}

}  // namespace

void Resize::describe(KeyTable& keys) {
  size_.describe(keys, "One number: the shorter edge, and the longer one keeps the image's proportions; or [height, width].");
  describe_interpolation(keys, interpolation_);
}

Frame Resize::plan(Frame frame) const {
  if (!size_.is_one_number()) return {size_.height(), size_.width()};
  if (!frame.is_exact) return {size_.height(), size_.height(), false};
  return {size_of(frame.height, frame), size_of(frame.width, frame)};
}

void Resize::apply(Picture& picture, SampleRandom&) const {
  const auto after = plan({picture.height(), picture.width()});
  picture.resize(after.height, after.width, interpolation_);
}

int Resize::size_of(int edge, const Frame& frame) const {
  const int shorter = std::min(frame.height, frame.width);
  return static_cast<int>(static_cast<double>(size_.height()) * edge / shorter);
}

void CenterCrop::describe(KeyTable& keys) {
  size_.describe(keys, "One number: height and width; or [height, width]. Where the image is smaller, black is added.");
}

void CenterCrop::apply(Picture& picture, SampleRandom&) const {
  picture.crop(begin_of_middle(picture.height(), size_.height()), begin_of_middle(picture.width(), size_.width()), size_.height(),
               size_.width());
}

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

class RandomResizedCrop : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    size_.describe(keys, "Of the result: one number for height and width, or [height, width].");
    keys.add("scale", scale_, {.min = 0, .max = 1, .min_excluded = true, .doc = "Least and greatest part of the image's area."});
    keys.add("ratio", ratio_, {.min = 0, .min_excluded = true, .doc = "Least and greatest ratio of width to height."});
    require_range(keys, "scale", scale_);
    require_range(keys, "ratio", ratio_);
    describe_interpolation(keys, interpolation_);
  }

  Frame plan(Frame) const override { return {size_.height(), size_.width()}; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const auto box =
        draw_resized_crop_box(picture.height(), picture.width(), {scale_.front(), scale_.back()}, {ratio_.front(), ratio_.back()}, random);
    picture.crop(box.top, box.left, box.height, box.width);
    picture.resize(size_.height(), size_.width(), interpolation_);
  }

 private:
  SizeKey size_;
  std::vector<double> scale_ = {0.08, 1.0};
  std::vector<double> ratio_ = {3.0 / 4, 4.0 / 3};
  Interpolation interpolation_ = Interpolation::kBilinear;
};

}  // namespace

void add_resize_and_crop(TransformRegistry& registry) {
  add_transform<Resize>(registry, "resize", "Changes the size.");
  add_transform<CenterCrop>(registry, "center_crop", "Keeps the middle of the image.");
  add_transform<RandomCrop>(registry, "random_crop", "Cuts a part out of the image, with optional padding, at a random place.");
  add_transform<RandomResizedCrop>(registry, "random_resized_crop",
                                   "Cuts a part of random size, proportions and place out of the image, and resizes it.");
}

}  // namespace trainer::data
