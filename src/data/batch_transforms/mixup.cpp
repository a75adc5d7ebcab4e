// As torchvision.transforms.v2.MixUp.

#include "data/batch_transforms/batch_transform.h"

namespace trainer::data {
namespace {

class Mixup : public BatchTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("alpha", alpha_,
             {.min = 0,
              .max = 1000,
              .min_excluded = true,
              .doc = "The weight has the distribution Beta(alpha, alpha): the smaller alpha, the closer it mostly is to 0 or 1."});
  }

  Mix apply(const torch::Tensor& images, at::Generator& generator) const override {
    const double weight = draw_beta(alpha_, generator);
    return {mix_with_previous(images, weight), weight};
  }

 private:
  double alpha_ = 1;
};

}  // namespace

void add_mixup(BatchTransformRegistry& registry) {
  add_batch_transform<Mixup>(
      registry, "mixup", "Replaces each sample and its label by weighted means with those of another one; a batch has one random weight.");
}

}  // namespace trainer::data
