#include "data/transforms/auto_augment_policies.h"

namespace trainer::data {
namespace {

enum class Policy { kImageNet, kCifar10, kSvhn };

constexpr int kNumMagnitudeBins = 10;

const SubPolicies& sub_policies(Policy policy) {
  switch (policy) {
    case Policy::kImageNet:
      return kImageNetPolicy;
    case Policy::kCifar10:
      return kCifar10Policy;
    default:
      return kSvhnPolicy;
  }
}

// As torchvision.transforms.AutoAugment.
class AutoAugment : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add_choice("policy", policy_, {{"imagenet", Policy::kImageNet}, {"cifar10", Policy::kCifar10}, {"svhn", Policy::kSvhn}},
                    {.doc = "The data set that the pairs of operations were learned on."});
  }

  Frame plan(Frame frame) const override { return frame; }
  bool moves_pixels() const override { return true; }
  bool uses_color() const override { return true; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const auto& pairs = sub_policies(policy_);
    for (const auto& step : pairs[random.next_below(static_cast<uint32_t>(pairs.size()))]) {
      if (!random.next_bool(step.p)) continue;
      const double magnitude =
          magnitude_of(step.augmentation, MagnitudeRange::kNormal, step.bin, kNumMagnitudeBins, picture.height(), picture.width());
      augment(picture, step.augmentation, draw_sign(step.augmentation, magnitude, random));
    }
  }

 private:
  Policy policy_ = Policy::kImageNet;
};

}  // namespace

void add_auto_augment(TransformRegistry& registry) {
  add_transform<AutoAugment>(registry, "auto_augment",
                             "AutoAugment: a random pair of operations on colours and geometry, from a learned list.");
}

}  // namespace trainer::data
