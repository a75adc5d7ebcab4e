#pragma once
// The pairs of operations that AutoAugment chooses from: _get_policies in torchvision/transforms/autoaugment.py.

#include <array>

#include "data/transforms/augmentation.h"

namespace trainer::data {

// Applied with probability p, with magnitude number `bin` of 10 (0: the operation has none, or the first).
struct AugmentationStep {
  Augmentation augmentation;
  double p;
  int bin;
};

using SubPolicies = std::array<std::array<AugmentationStep, 2>, 25>;

// clang-format off
inline constexpr SubPolicies kImageNetPolicy = {{
    {{{Augmentation::kPosterize, 0.4, 8}, {Augmentation::kRotate, 0.6, 9}}},
    {{{Augmentation::kSolarize, 0.6, 5}, {Augmentation::kAutoContrast, 0.6, 0}}},
    {{{Augmentation::kEqualize, 0.8, 0}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kPosterize, 0.6, 7}, {Augmentation::kPosterize, 0.6, 6}}},
    {{{Augmentation::kEqualize, 0.4, 0}, {Augmentation::kSolarize, 0.2, 4}}},
    {{{Augmentation::kEqualize, 0.4, 0}, {Augmentation::kRotate, 0.8, 8}}},
    {{{Augmentation::kSolarize, 0.6, 3}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kPosterize, 0.8, 5}, {Augmentation::kEqualize, 1.0, 0}}},
    {{{Augmentation::kRotate, 0.2, 3}, {Augmentation::kSolarize, 0.6, 8}}},
    {{{Augmentation::kEqualize, 0.6, 0}, {Augmentation::kPosterize, 0.4, 6}}},
    {{{Augmentation::kRotate, 0.8, 8}, {Augmentation::kColor, 0.4, 0}}},
    {{{Augmentation::kRotate, 0.4, 9}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kEqualize, 0.0, 0}, {Augmentation::kEqualize, 0.8, 0}}},
    {{{Augmentation::kInvert, 0.6, 0}, {Augmentation::kEqualize, 1.0, 0}}},
    {{{Augmentation::kColor, 0.6, 4}, {Augmentation::kContrast, 1.0, 8}}},
    {{{Augmentation::kRotate, 0.8, 8}, {Augmentation::kColor, 1.0, 2}}},
    {{{Augmentation::kColor, 0.8, 8}, {Augmentation::kSolarize, 0.8, 7}}},
    {{{Augmentation::kSharpness, 0.4, 7}, {Augmentation::kInvert, 0.6, 0}}},
    {{{Augmentation::kShearX, 0.6, 5}, {Augmentation::kEqualize, 1.0, 0}}},
    {{{Augmentation::kColor, 0.4, 0}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kEqualize, 0.4, 0}, {Augmentation::kSolarize, 0.2, 4}}},
    {{{Augmentation::kSolarize, 0.6, 5}, {Augmentation::kAutoContrast, 0.6, 0}}},
    {{{Augmentation::kInvert, 0.6, 0}, {Augmentation::kEqualize, 1.0, 0}}},
    {{{Augmentation::kColor, 0.6, 4}, {Augmentation::kContrast, 1.0, 8}}},
    {{{Augmentation::kEqualize, 0.8, 0}, {Augmentation::kEqualize, 0.6, 0}}},
}};

inline constexpr SubPolicies kCifar10Policy = {{
    {{{Augmentation::kInvert, 0.1, 0}, {Augmentation::kContrast, 0.2, 6}}},
    {{{Augmentation::kRotate, 0.7, 2}, {Augmentation::kTranslateX, 0.3, 9}}},
    {{{Augmentation::kSharpness, 0.8, 1}, {Augmentation::kSharpness, 0.9, 3}}},
    {{{Augmentation::kShearY, 0.5, 8}, {Augmentation::kTranslateY, 0.7, 9}}},
    {{{Augmentation::kAutoContrast, 0.5, 0}, {Augmentation::kEqualize, 0.9, 0}}},
    {{{Augmentation::kShearY, 0.2, 7}, {Augmentation::kPosterize, 0.3, 7}}},
    {{{Augmentation::kColor, 0.4, 3}, {Augmentation::kBrightness, 0.6, 7}}},
    {{{Augmentation::kSharpness, 0.3, 9}, {Augmentation::kBrightness, 0.7, 9}}},
    {{{Augmentation::kEqualize, 0.6, 0}, {Augmentation::kEqualize, 0.5, 0}}},
    {{{Augmentation::kContrast, 0.6, 7}, {Augmentation::kSharpness, 0.6, 5}}},
    {{{Augmentation::kColor, 0.7, 7}, {Augmentation::kTranslateX, 0.5, 8}}},
    {{{Augmentation::kEqualize, 0.3, 0}, {Augmentation::kAutoContrast, 0.4, 0}}},
    {{{Augmentation::kTranslateY, 0.4, 3}, {Augmentation::kSharpness, 0.2, 6}}},
    {{{Augmentation::kBrightness, 0.9, 6}, {Augmentation::kColor, 0.2, 8}}},
    {{{Augmentation::kSolarize, 0.5, 2}, {Augmentation::kInvert, 0.0, 0}}},
    {{{Augmentation::kEqualize, 0.2, 0}, {Augmentation::kAutoContrast, 0.6, 0}}},
    {{{Augmentation::kEqualize, 0.2, 0}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kColor, 0.9, 9}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kAutoContrast, 0.8, 0}, {Augmentation::kSolarize, 0.2, 8}}},
    {{{Augmentation::kBrightness, 0.1, 3}, {Augmentation::kColor, 0.7, 0}}},
    {{{Augmentation::kSolarize, 0.4, 5}, {Augmentation::kAutoContrast, 0.9, 0}}},
    {{{Augmentation::kTranslateY, 0.9, 9}, {Augmentation::kTranslateY, 0.7, 9}}},
    {{{Augmentation::kAutoContrast, 0.9, 0}, {Augmentation::kSolarize, 0.8, 3}}},
    {{{Augmentation::kEqualize, 0.8, 0}, {Augmentation::kInvert, 0.1, 0}}},
    {{{Augmentation::kTranslateY, 0.7, 9}, {Augmentation::kAutoContrast, 0.9, 0}}},
}};

inline constexpr SubPolicies kSvhnPolicy = {{
    {{{Augmentation::kShearX, 0.9, 4}, {Augmentation::kInvert, 0.2, 0}}},
    {{{Augmentation::kShearY, 0.9, 8}, {Augmentation::kInvert, 0.7, 0}}},
    {{{Augmentation::kEqualize, 0.6, 0}, {Augmentation::kSolarize, 0.6, 6}}},
    {{{Augmentation::kInvert, 0.9, 0}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kEqualize, 0.6, 0}, {Augmentation::kRotate, 0.9, 3}}},
    {{{Augmentation::kShearX, 0.9, 4}, {Augmentation::kAutoContrast, 0.8, 0}}},
    {{{Augmentation::kShearY, 0.9, 8}, {Augmentation::kInvert, 0.4, 0}}},
    {{{Augmentation::kShearY, 0.9, 5}, {Augmentation::kSolarize, 0.2, 6}}},
    {{{Augmentation::kInvert, 0.9, 0}, {Augmentation::kAutoContrast, 0.8, 0}}},
    {{{Augmentation::kEqualize, 0.6, 0}, {Augmentation::kRotate, 0.9, 3}}},
    {{{Augmentation::kShearX, 0.9, 4}, {Augmentation::kSolarize, 0.3, 3}}},
    {{{Augmentation::kShearY, 0.8, 8}, {Augmentation::kInvert, 0.7, 0}}},
    {{{Augmentation::kEqualize, 0.9, 0}, {Augmentation::kTranslateY, 0.6, 6}}},
    {{{Augmentation::kInvert, 0.9, 0}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kContrast, 0.3, 3}, {Augmentation::kRotate, 0.8, 4}}},
    {{{Augmentation::kInvert, 0.8, 0}, {Augmentation::kTranslateY, 0.0, 2}}},
    {{{Augmentation::kShearY, 0.7, 6}, {Augmentation::kSolarize, 0.4, 8}}},
    {{{Augmentation::kInvert, 0.6, 0}, {Augmentation::kRotate, 0.8, 4}}},
    {{{Augmentation::kShearY, 0.3, 7}, {Augmentation::kTranslateX, 0.9, 3}}},
    {{{Augmentation::kShearX, 0.1, 6}, {Augmentation::kInvert, 0.6, 0}}},
    {{{Augmentation::kSolarize, 0.7, 2}, {Augmentation::kTranslateY, 0.6, 7}}},
    {{{Augmentation::kShearY, 0.8, 4}, {Augmentation::kInvert, 0.8, 0}}},
    {{{Augmentation::kShearX, 0.7, 9}, {Augmentation::kTranslateY, 0.8, 3}}},
    {{{Augmentation::kShearY, 0.8, 5}, {Augmentation::kAutoContrast, 0.7, 0}}},
    {{{Augmentation::kShearX, 0.7, 2}, {Augmentation::kInvert, 0.1, 0}}},
}};
// clang-format on

}  // namespace trainer::data
