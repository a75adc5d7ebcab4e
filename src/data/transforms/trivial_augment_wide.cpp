#include "data/transforms/augmentation.h"

namespace trainer::data {
namespace {

// As torchvision.transforms.TrivialAugmentWide.
class TrivialAugmentWide : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("num_magnitude_bins", num_magnitude_bins_, {.min = 2, .max = 1000, .doc = "Number of magnitudes."});
  }

  Frame plan(Frame frame) const override { return frame; }
  bool moves_pixels() const override { return true; }
  bool uses_color() const override { return true; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const auto augmentation = kAugmentations[random.next_below(kAugmentations.size())];
    const auto bin = static_cast<int>(random.next_below(static_cast<uint32_t>(num_magnitude_bins_)));
    const double magnitude =
        magnitude_of(augmentation, MagnitudeRange::kWide, bin, static_cast<int>(num_magnitude_bins_), picture.height(), picture.width());
    augment(picture, augmentation, draw_sign(augmentation, magnitude, random));
  }

 private:
  int64_t num_magnitude_bins_ = 31;
};

}  // namespace

void add_trivial_augment_wide(TransformRegistry& registry) {
  add_transform<TrivialAugmentWide>(registry, "trivial_augment_wide",
                                    "TrivialAugment: one random operation on colours or geometry, of random magnitude.");
}

}  // namespace trainer::data
