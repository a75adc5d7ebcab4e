#pragma once
// The operations that AutoAugment, RandAugment and TrivialAugment choose from, as torchvision defines them (torchvision/transforms/
// autoaugment.py). Operations that move pixels do not interpolate; pixels from outside the image are black.

#include "data/picture.h"
#include "data/transforms/transform.h"

namespace trainer::data {

enum class Augmentation {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
  kInvert,
};

// The range of magnitudes: kNormal for AutoAugment and RandAugment, kWide for TrivialAugment.
enum class MagnitudeRange { kNormal, kWide };

// Returns magnitude number `bin` of `num_bins` >= 2 for an image of the given size, or 0 for operations without magnitudes.
double magnitude_of(Augmentation augmentation, MagnitudeRange range, int bin, int num_bins, int height, int width);

// Returns the magnitude with a random sign if torchvision draws a sign for this operation, otherwise the unchanged magnitude.
double draw_sign(Augmentation augmentation, double magnitude, SampleRandom& random);

// Bitwise equal to torchvision's _apply_op. The image has 1 or 3 channels.
void augment(Picture& picture, Augmentation augmentation, double magnitude);

// Bitwise equal to Pillow's Image.rotate (src/PIL/Image.py) without interpolation.
void rotate(Picture& picture, double degrees);

}  // namespace trainer::data
