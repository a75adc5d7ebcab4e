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

}  // namespace

double magnitude_of(Augmentation augmentation, MagnitudeRange range, int bin, int num_bins, int height, int width) {
  const bool is_wide = range == MagnitudeRange::kWide;
  const auto from_zero = [&](double last) { return linspace(0, last, bin, num_bins); };
  switch (augmentation) {
    case Augmentation::kShearX:
    case Augmentation::kShearY:
      return from_zero(is_wide ? 0.99 : 0.3);
    case Augmentation::kTranslateX:
      return from_zero(is_wide ? 32.0 : 150.0 / 331.0 * width);
    case Augmentation::kTranslateY:
      return from_zero(is_wide ? 32.0 : 150.0 / 331.0 * height);
    case Augmentation::kRotate:
      return from_zero(is_wide ? 135.0 : 30.0);
    case Augmentation::kBrightness:
    case Augmentation::kColor:
    case Augmentation::kContrast:
    case Augmentation::kSharpness:
      return from_zero(is_wide ? 0.99 : 0.9);
    case Augmentation::kPosterize:
      return 8 - std::nearbyint(static_cast<float>(bin) / static_cast<float>((num_bins - 1) / (is_wide ? 6.0 : 4.0)));
    case Augmentation::kSolarize:
      return linspace(255, 0, bin, num_bins);
    default:
      return 0;
  }
}

double draw_sign(Augmentation augmentation, double magnitude, SampleRandom& random) {
  const bool is_signed = augmentation >= Augmentation::kShearX && augmentation <= Augmentation::kSharpness;
  return is_signed && random.next_bool(0.5) ? -magnitude : magnitude;
}

void augment(Picture& picture, Augmentation augmentation, double magnitude) {
  const auto factor = static_cast<float>(1 + magnitude);
  switch (augmentation) {
    case Augmentation::kIdentity:
      return;
    case Augmentation::kShearX:
      return apply_affine(picture, shear(magnitude, 0));
    case Augmentation::kShearY:
      return apply_affine(picture, shear(0, magnitude));
    case Augmentation::kTranslateX:
      return apply_affine(picture, translation(static_cast<int>(magnitude), 0));
    case Augmentation::kTranslateY:
      return apply_affine(picture, translation(0, static_cast<int>(magnitude)));
    case Augmentation::kRotate:
      return rotate(picture, magnitude);
    case Augmentation::kBrightness:
      return adjust_brightness(picture.pixels(), factor);
    case Augmentation::kColor:
      return adjust_saturation(picture.pixels(), factor);
    case Augmentation::kContrast:
      return adjust_contrast(picture.pixels(), factor);
    case Augmentation::kSharpness:
      return sharpen(picture, factor);
    case Augmentation::kPosterize:
      return posterize(picture.pixels(), static_cast<int>(magnitude));
    case Augmentation::kSolarize:
      return solarize(picture.pixels(), magnitude);
    case Augmentation::kAutoContrast:
      return autocontrast(picture.pixels());
    case Augmentation::kEqualize:
      return equalize(picture.pixels());
    case Augmentation::kInvert:
      return invert(picture.pixels());
  }
}

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
