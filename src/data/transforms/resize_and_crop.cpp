#include "data/transforms/resize_and_crop.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/error.h"

namespace trainer::data {
namespace {

void describe_interpolation(KeyTable& keys, Interpolation& interpolation) {
  keys.add_choice("interpolation", interpolation,
                  {{"bilinear", Interpolation::kBilinear},
                   {"bicubic", Interpolation::kBicubic},
                   {"lanczos", Interpolation::kLanczos},
                   {"nearest", Interpolation::kNearest}},
                  {.doc = "Interpolation method, as in Pillow. All methods except nearest are antialiased."});
}

// Where the middle `size` pixels of an edge begin; 0 or negative if the edge is shorter than `size`.
int begin_of_middle(int extent, int size) {
  if (size > extent) return -((size - extent) / 2);
  return rounded((extent - size) / 2.0);
}

void describe_fill(KeyTable& keys, int64_t& fill) {
  keys.add("fill", fill, {.min = 0, .max = 255, .doc = "Value of the added pixels in all channels; 0 is black."});
}

}  // namespace

void Resize::describe(KeyTable& keys) {
  describe_size(keys, size, "One number: the new length of the shorter edge, keeping the proportions; or [height, width].",
                /*is_required=*/false);
  keys.add("longest", longest,
           {.min = 1,
            .max = kMaxPixels,
            .unit = "pixels",
            .doc = "Instead of size: the new length of the longer edge, keeping the proportions."});
  keys.refuse("size", [this] { return !size.is_given() && !longest ? "missing; give this or longest" : ""; });
  keys.refuse("longest", [this] { return size.is_given() && longest ? "given together with size; keep one of them" : ""; });
  describe_interpolation(keys, interpolation);
}

Frame Resize::plan(Frame frame) const {
  if (!longest && !size.is_one_number()) return {size.height(), size.width()};
  const int least = longest ? 1 : size.height();
  if (!frame.is_exact) return {least, least, false};
  const int edge_before = longest ? std::max(frame.height, frame.width) : std::min(frame.height, frame.width);
  const auto edge_after = static_cast<double>(longest ? *longest : size.height());
  const auto size_of = [&](int edge) { return std::max(static_cast<int>(edge_after * edge / edge_before), 1); };
  return {size_of(frame.height), size_of(frame.width)};
}

void Resize::apply(Picture& picture, SampleRandom&) const {
  const auto after = plan({picture.height(), picture.width()});
  picture.resize(after.height, after.width, interpolation);
}

void Letterbox::describe(KeyTable& keys) {
  describe_size(keys, size_, "Size of the result: one number for both height and width, or [height, width].");
  describe_fill(keys, fill_);
  describe_interpolation(keys, interpolation_);
}

void Letterbox::apply(Picture& picture, SampleRandom&) const {
  int height = size_.height();
  int width = size_.width();
  const double ratio = static_cast<double>(picture.width()) / picture.height();
  const double ratio_of_frame = static_cast<double>(width) / height;
  if (ratio > ratio_of_frame) height = std::max(rounded(static_cast<double>(picture.height()) / picture.width() * width), 1);
  if (ratio < ratio_of_frame) width = std::max(rounded(static_cast<double>(picture.width()) / picture.height() * height), 1);
  picture.resize(height, width, interpolation_);
  picture.crop(-rounded((size_.height() - height) * 0.5), -rounded((size_.width() - width) * 0.5), size_.height(), size_.width(),
               Padding::kZero, static_cast<uint8_t>(fill_));
}

void Pad::describe(KeyTable& keys) {
  keys.add("padding", padding_,
           {.min = 0,
            .max = kMaxPixels,
            .unit = "pixels",
            .doc = "Number of pixels added on each side, or [left, top, right, bottom].",
            .required = true,
            .may_be_one = true});
  keys.refuse("padding", [this]() -> std::string {
    if (padding_.size() == 1 || padding_.size() == 4) return "";
    return fmt::format("has {} numbers; set one number, or [left, top, right, bottom]", padding_.size());
  });
  describe_fill(keys, fill_);
  keys.add_choice("padding_mode", mode_, {{"constant", Padding::kZero}, {"reflect", Padding::kReflect}},
                  {.doc = "Content of the added pixels: fill, or the image mirrored at its edge (the edge is not repeated)."});
}

Pad::Margins Pad::margins() const {
  const auto at = [&](size_t i) { return static_cast<int>(padding_[padding_.size() == 1 ? 0 : i]); };
  return {at(0), at(1), at(2), at(3)};
}

Frame Pad::plan(Frame frame) const {
  const auto [left, top, right, bottom] = margins();
  const bool reaches_too_far = std::max(top, bottom) >= frame.height || std::max(left, right) >= frame.width;
  if (mode_ == Padding::kReflect && reaches_too_far) {
    throw UsageError(fmt::format(
        "transform pad: padding [{}, {}, {}, {}] with padding_mode reflect must be smaller than the image, which has {}; choose "
        "less padding, or add resize before it",
        left, top, right, bottom, to_string(frame)));
  }
  frame.height += top + bottom;
  frame.width += left + right;
  if (std::max(frame.height, frame.width) > kMaxPixels) {
    throw UsageError(fmt::format("transform pad: the image would have {}, which is more than {} in one direction; choose less padding",
                                 to_string(frame), static_cast<int>(kMaxPixels)));
  }
  return frame;
}

void Pad::apply(Picture& picture, SampleRandom&) const {
  const auto [left, top, right, bottom] = margins();
  picture.crop(-top, -left, picture.height() + top + bottom, picture.width() + left + right, mode_, static_cast<uint8_t>(fill_));
}

void CenterCrop::describe(KeyTable& keys) {
  describe_size(keys, size, "One number for both height and width, or [height, width]. If the image is smaller, black is added.");
}

void CenterCrop::apply(Picture& picture, SampleRandom&) const {
  picture.crop(begin_of_middle(picture.height(), size.height()), begin_of_middle(picture.width(), size.width()), size.height(),
               size.width());
}

namespace {

class RandomCrop : public ImageTransform, public RandomCropOptions {
 public:
  void describe(KeyTable& keys) {
    describe_size(keys, size, "Size of the crop: one number for both height and width, or [height, width].");
    keys.add("padding", padding,
             {.min = 0, .max = kMaxPixels, .unit = "pixels", .doc = "Number of pixels added on each side before cropping."});
    keys.add_choice("padding_mode", padding_mode, {{"zero", Padding::kZero}, {"reflect", Padding::kReflect}},
                    {.doc = "Content of the added pixels: black, or the image mirrored at its edge (the edge is not repeated)."});
  }

  Frame plan(Frame frame) const override {
    if (padding_mode == Padding::kReflect && padding >= std::min(frame.height, frame.width)) {
      throw UsageError(fmt::format(
          "transform random_crop: padding {} with padding_mode reflect must be smaller than the image, which has {}; choose less "
          "padding, or add resize before it",
          padding, to_string(frame)));
    }
    if (size.height() > frame.height + 2 * padding || size.width() > frame.width + 2 * padding) {
      if (!frame.is_exact) {
        throw UsageError(
            fmt::format("transform random_crop: the images have different sizes, and some may be smaller than {}; add resize before it",
                        to_string(size)));
      }
      throw UsageError(
          fmt::format("transform random_crop: size {} does not fit into the image of {} with padding {}; choose a smaller size or more "
                      "padding",
                      to_string(size), to_string(frame), padding));
    }
    return {size.height(), size.width()};
  }

  bool fits_all_depths() const override { return true; }

  std::string warning(const Frame& frame) const override {
    if (padding < std::min(frame.height, frame.width)) return "";
    return fmt::format(
        "padding {} is not smaller than the image, which has {}, so a crop may contain little or nothing of the image; choose less padding",
        padding, to_string(frame));
  }

  void apply(Picture& picture, SampleRandom& random) const override {
    const int top = draw_offset(picture.height(), size.height(), random);
    const int left = draw_offset(picture.width(), size.width(), random);
    picture.crop(top, left, size.height(), size.width(), padding_mode);
  }

 private:
  // The start of the crop, relative to the start of an unpadded image with the given extent.
  int draw_offset(int extent, int length, CounterRandom& random) const {
    const int64_t num_places = extent + 2 * padding - length + 1;
    return static_cast<int>(random.next_below(static_cast<uint32_t>(num_places)) - padding);
  }
};

class RandomResizedCrop : public ImageTransform, public RandomResizedCropOptions {
 public:
  void describe(KeyTable& keys) {
    describe_size(keys, size, "Size of the result: one number for both height and width, or [height, width].");
    keys.add("scale", scale,
             {.min = 0, .max = 1, .min_excluded = true, .doc = "Minimum and maximum size of the crop, as a fraction of the image's area."});
    keys.add("ratio", ratio, {.min = 0, .min_excluded = true, .doc = "Minimum and maximum ratio of width to height of the crop."});
    require_range(keys, "scale", scale);
    require_range(keys, "ratio", ratio);
    describe_interpolation(keys, interpolation);
  }

  Frame plan(Frame) const override { return {size.height(), size.width()}; }
  bool fits_all_depths() const override { return true; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const auto box =
        draw_resized_crop_box(picture.height(), picture.width(), {scale.front(), scale.back()}, {ratio.front(), ratio.back()}, random);
    picture.crop(box.top, box.left, box.height, box.width);
    picture.resize(size.height(), size.width(), interpolation);
  }
};

}  // namespace

void add_resize_and_crop(TransformRegistry& registry) {
  add_transform<Resize>(registry, "resize", "Resizes the image.");
  add_transform<Letterbox>(registry, "letterbox",
                           "Resizes the whole image to fit into a frame, and adds pixels on two sides if the proportions "
                           "differ.");
  add_transform<Pad>(registry, "pad", "Adds pixels at the edges of the image.");
  add_transform<CenterCrop>(registry, "center_crop", "Crops the middle of the image.");
  add_transform<RandomCrop>(registry, "random_crop", "Crops the image at a random position, with optional padding.");
  add_transform<RandomResizedCrop>(registry, "random_resized_crop",
                                   "Crops a part of random size, proportions and position, and resizes it.");
}

}  // namespace trainer::data
