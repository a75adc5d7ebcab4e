#include "data/transforms/augmentation.h"

#include <cmath>

#include "data/operations/operations.h"

namespace trainer::data {
namespace {

// Equals torch.linspace in float32 on processors with fused multiply-add.
double linspace(double first, double last, int index, int count) {
  const auto begin = static_cast<float>(first);
  const auto end = static_cast<float>(last);
  const float step = (end - begin) / static_cast<float>(count - 1);
  if (index < count / 2) return std::fma(step, static_cast<float>(index), begin);
  return std::fma(-step, static_cast<float>(count - index - 1), end);
}

void apply_affine(Picture& picture, const AffineMatrix& matrix) {
  const auto pixels = picture.pixels();
  transform_affine(pixels, matrix, picture.replace_pixels());
}

void sharpen(Picture& picture, float factor) {
  const auto pixels = picture.pixels();
  adjust_sharpness(pixels, factor, picture.replace_pixels());
}

template <void (*kAdjust)(const PixelArray&, float)>
void adjust(Picture& picture, double magnitude) {
  kAdjust(picture.pixels(), static_cast<float>(1 + magnitude));
}

template <void (*kChange)(const PixelArray&)>
void change(Picture& picture, double /*magnitude*/) {
  kChange(picture.pixels());
}

struct Operation {
  double normal, wide;  // the largest magnitude of each range, if the magnitudes begin with 0 and do not depend on the image
  void (*apply)(Picture& picture, double magnitude);
};

// In the order of Augmentation.
constexpr std::array<Operation, 15> kOperations = {
    {{0, 0, [](Picture&, double) {}},
     {0.3, 0.99, [](Picture& picture, double magnitude) { apply_affine(picture, shear(magnitude, 0)); }},
     {0.3, 0.99, [](Picture& picture, double magnitude) { apply_affine(picture, shear(0, magnitude)); }},
     {0, 32, [](Picture& picture, double magnitude) { apply_affine(picture, translation(static_cast<int>(magnitude), 0)); }},
     {0, 32, [](Picture& picture, double magnitude) { apply_affine(picture, translation(0, static_cast<int>(magnitude))); }},
     {30, 135, rotate},
     {0.9, 0.99, adjust<adjust_brightness>},
     {0.9, 0.99, adjust<adjust_saturation>},
     {0.9, 0.99, adjust<adjust_contrast>},
     {0.9, 0.99, [](Picture& picture, double magnitude) { sharpen(picture, static_cast<float>(1 + magnitude)); }},
     {0, 0, [](Picture& picture, double magnitude) { posterize(picture.pixels(), static_cast<int>(magnitude)); }},
     {0, 0, [](Picture& picture, double magnitude) { solarize(picture.pixels(), magnitude); }},
     {0, 0, change<autocontrast>},
     {0, 0, change<equalize>},
     {0, 0, change<invert>}}};

const Operation& operation_of(Augmentation augmentation) { return kOperations[static_cast<size_t>(augmentation)]; }

}  // namespace

double magnitude_of(Augmentation augmentation, MagnitudeRange range, int bin, int num_bins, int height, int width) {
  const bool is_wide = range == MagnitudeRange::kWide;
  if (augmentation == Augmentation::kPosterize) {
    return 8 - std::nearbyint(static_cast<float>(bin) / static_cast<float>((num_bins - 1) / (is_wide ? 6.0 : 4.0)));
  }
  if (augmentation == Augmentation::kSolarize) return linspace(255, 0, bin, num_bins);
  double last = is_wide ? operation_of(augmentation).wide : operation_of(augmentation).normal;
  if (!is_wide && augmentation == Augmentation::kTranslateX) last = 150.0 / 331.0 * width;
  if (!is_wide && augmentation == Augmentation::kTranslateY) last = 150.0 / 331.0 * height;
  return linspace(0, last, bin, num_bins);
}

double draw_sign(Augmentation augmentation, double magnitude, SampleRandom& random) {
  const bool is_signed = augmentation >= Augmentation::kShearX && augmentation <= Augmentation::kSharpness;
  return is_signed && random.next_bool(0.5) ? -magnitude : magnitude;
}

void augment(Picture& picture, Augmentation augmentation, double magnitude) { operation_of(augmentation).apply(picture, magnitude); }

void rotate(Picture& picture, double degrees) {
  // Like Python's %, the result is 0 to 360.
  double angle = std::fmod(degrees, 360);
  if (angle < 0) angle += 360;
  if (angle == 0) return;
  if (angle == 180) {
    picture.mirror();
    picture.flip();
    return;
  }
  const auto pixels = picture.pixels();
  if ((angle == 90 || angle == 270) && pixels.height == pixels.width) {
    rotate_quarter(pixels, /*clockwise=*/angle == 270, picture.replace_pixels());
  } else {
    transform_affine(pixels, rotation(angle, pixels.height, pixels.width), picture.replace_pixels());
  }
}

}  // namespace trainer::data
