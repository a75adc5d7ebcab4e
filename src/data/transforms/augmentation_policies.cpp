#include <fmt/format.h>

#include <array>

#include "data/transforms/augmentation.h"

namespace trainer::data {
namespace {

// The pairs of operations that AutoAugment chooses from: _get_policies in torchvision/transforms/autoaugment.py.

// An operation, applied with probability p and magnitude number `bin` of 10; for operations without magnitudes, `bin` is 0.
struct AugmentationStep {
  Augmentation augmentation;
  double p;
  int bin;
};

using SubPolicies = std::array<std::array<AugmentationStep, 2>, 25>;

// clang-format off
constexpr SubPolicies kImageNetPolicy = {{
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

constexpr SubPolicies kCifar10Policy = {{
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

constexpr SubPolicies kSvhnPolicy = {{
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

constexpr int kNumMagnitudeBins = 10;

class Policy : public ImageTransform {
 public:
  bool moves_pixels() const override { return true; }
  bool uses_color() const override { return true; }

 protected:
  // One of all operations but kInvert, which is the last.
  static Augmentation draw(SampleRandom& random) {
    return static_cast<Augmentation>(random.next_below(static_cast<uint32_t>(Augmentation::kInvert)));
  }
  static void apply_one(Picture& picture, Augmentation augmentation, MagnitudeRange range, int64_t bin, int64_t num_bins,
                        SampleRandom& random) {
    const double magnitude =
        magnitude_of(augmentation, range, static_cast<int>(bin), static_cast<int>(num_bins), picture.height(), picture.width());
    augment(picture, augmentation, draw_sign(augmentation, magnitude, random));
  }
};

// Like torchvision.transforms.AutoAugment.
class AutoAugment : public Policy {
 public:
  void describe(KeyTable& keys) {
    keys.add_choice("policy", policy_, {{"imagenet", &kImageNetPolicy}, {"cifar10", &kCifar10Policy}, {"svhn", &kSvhnPolicy}},
                    {.doc = "The data set on which the pairs of operations were learned."});
  }

  void apply(Picture& picture, SampleRandom& random) const override {
    for (const auto& step : (*policy_)[random.next_below(static_cast<uint32_t>(policy_->size()))]) {
      if (random.next_bool(step.p)) apply_one(picture, step.augmentation, MagnitudeRange::kNormal, step.bin, kNumMagnitudeBins, random);
    }
  }

 private:
  const SubPolicies* policy_ = &kImageNetPolicy;
};

// Like torchvision.transforms.RandAugment.
class RandAugment : public Policy {
 public:
  void describe(KeyTable& keys) {
    keys.add("num_ops", num_ops_,
             {.min = 1, .max = 100, .unit = "operations", .doc = "Number of operations that are applied one after another."});
    keys.add("magnitude", magnitude_, {.min = 0, .doc = "Magnitude of all operations: a number below num_magnitude_bins."});
    keys.add("num_magnitude_bins", num_magnitude_bins_, {.min = 2, .max = 1000, .doc = "Number of magnitudes."});
    keys.refuse("magnitude", [this]() -> std::string {
      if (magnitude_ < num_magnitude_bins_) return "";
      return fmt::format("{} is not less than num_magnitude_bins, which is {}; choose a smaller magnitude", magnitude_,
                         num_magnitude_bins_);
    });
  }

  void apply(Picture& picture, SampleRandom& random) const override {
    for (int64_t i = 0; i < num_ops_; ++i) {
      apply_one(picture, draw(random), MagnitudeRange::kNormal, magnitude_, num_magnitude_bins_, random);
    }
  }

 private:
  int64_t num_ops_ = 2;
  int64_t magnitude_ = 9;
  int64_t num_magnitude_bins_ = 31;
};

// Like torchvision.transforms.TrivialAugmentWide.
class TrivialAugmentWide : public Policy {
 public:
  void describe(KeyTable& keys) {
    keys.add("num_magnitude_bins", num_magnitude_bins_, {.min = 2, .max = 1000, .doc = "Number of magnitudes."});
  }

  void apply(Picture& picture, SampleRandom& random) const override {
    const auto augmentation = draw(random);
    const auto bin = random.next_below(static_cast<uint32_t>(num_magnitude_bins_));
    apply_one(picture, augmentation, MagnitudeRange::kWide, bin, num_magnitude_bins_, random);
  }

 private:
  int64_t num_magnitude_bins_ = 31;
};

}  // namespace

void add_augmentation_policies(TransformRegistry& registry) {
  add_transform<AutoAugment>(registry, "auto_augment",
                             "AutoAugment: a random pair of colour and geometric operations from a learned list.");
  add_transform<RandAugment>(registry, "rand_augment", "RandAugment: random colour and geometric operations, all with the same magnitude.");
  add_transform<TrivialAugmentWide>(registry, "trivial_augment_wide",
                                    "TrivialAugment: one random colour or geometric operation with a random magnitude.");
}

}  // namespace trainer::data
