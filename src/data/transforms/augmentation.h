#pragma once
// The operations that AutoAugment, RandAugment and TrivialAugment choose from, as torchvision defines them (torchvision/transforms/
// autoaugment.py). Those that move pixels do not interpolate; what comes from outside is black.

#include <array>

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

// What RandAugment and TrivialAugment choose from.
inline constexpr std::array kAugmentations = {
    Augmentation::kIdentity,  Augmentation::kShearX,     Augmentation::kShearY,       Augmentation::kTranslateX, Augmentation::kTranslateY,
    Augmentation::kRotate,    Augmentation::kBrightness, Augmentation::kColor,        Augmentation::kContrast,   Augmentation::kSharpness,
    Augmentation::kPosterize, Augmentation::kSolarize,   Augmentation::kAutoContrast, Augmentation::kEqualize};

// The ranges of magnitudes: that of AutoAugment and RandAugment, and that of TrivialAugment.
enum class MagnitudeRange { kNormal, kWide };

// Magnitude number `bin` of `num_bins`, which are at least 2, for an image of that size; 0 for operations without magnitudes.
double magnitude_of(Augmentation augmentation, MagnitudeRange range, int bin, int num_bins, int height, int width);

// Draws whether the magnitude is negative, of operations for which torchvision does. Returns the magnitude with its sign.
double draw_sign(Augmentation augmentation, double magnitude, SampleRandom& random);

// _apply_op, bit for bit. The picture has 1 or 3 channels.
void augment(Picture& picture, Augmentation augmentation, double magnitude);

// Rotates the picture counter-clockwise about its middle and leaves its size as it is; what comes from outside is black. Equals
// Image.rotate of Pillow (src/PIL/Image.py), without interpolation, bit for bit.
void rotate(Picture& picture, double degrees);

}  // namespace trainer::data
