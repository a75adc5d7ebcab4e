#include <fmt/format.h>

#include "data/transforms/augmentation.h"

namespace trainer::data {
namespace {

// As torchvision.transforms.RandAugment.
class RandAugment : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("num_ops", num_ops_, {.min = 1, .max = 100, .unit = "operations", .doc = "Applied one after another."});
    keys.add("magnitude", magnitude_, {.min = 0, .doc = "Of all operations: a number below num_magnitude_bins."});
    keys.add("num_magnitude_bins", num_magnitude_bins_, {.min = 2, .max = 1000, .doc = "Number of magnitudes."});
    keys.refuse("magnitude", [this]() -> std::string {
      if (magnitude_ < num_magnitude_bins_) return "";
      return fmt::format("{} is not below num_magnitude_bins, which is {}", magnitude_, num_magnitude_bins_);
    });
  }

  Frame plan(Frame frame) const override { return frame; }
  bool moves_pixels() const override { return true; }
  bool uses_color() const override { return true; }

  void apply(Picture& picture, SampleRandom& random) const override {
    for (int64_t i = 0; i < num_ops_; ++i) {
      const auto augmentation = kAugmentations[random.next_below(kAugmentations.size())];
      const double magnitude = magnitude_of(augmentation, MagnitudeRange::kNormal, static_cast<int>(magnitude_),
                                            static_cast<int>(num_magnitude_bins_), picture.height(), picture.width());
      augment(picture, augmentation, draw_sign(augmentation, magnitude, random));
    }
  }

 private:
  int64_t num_ops_ = 2;
  int64_t magnitude_ = 9;
  int64_t num_magnitude_bins_ = 31;
};

}  // namespace

void add_rand_augment(TransformRegistry& registry) {
  add_transform<RandAugment>(registry, "rand_augment",
                             "RandAugment: random operations on colours and geometry, all of the same magnitude.");
}

}  // namespace trainer::data
