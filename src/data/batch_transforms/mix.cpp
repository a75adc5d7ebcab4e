#include <algorithm>
#include <cmath>

#include "data/batch_transforms/batch_mixer.h"
#include "trainer/torch.h"

namespace trainer::data {
namespace {

// Like torchvision.transforms.v2.MixUp.
class Mixup : public BatchTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("alpha", alpha_,
             {.min = 0,
              .max = 1000,
              .min_excluded = true,
              .doc = "The weight has the distribution Beta(alpha, alpha). With a small alpha, most weights are close to 0 or 1."});
  }

  Mix apply(const torch::Tensor& images, at::Generator& generator) const override {
    const double weight = draw_beta(alpha_, generator);
    return {mix_with_previous(images, weight), weight};
  }

 private:
  double alpha_ = 1;
};

struct Span {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};

// A span around a random position, clipped to the range 0 to `length`. `half_size`: half of the span's size, as a fraction of `length`.
Span draw_span(int64_t length, double half_size, at::Generator& generator) {
  const auto center = at::randint(length, {1}, generator, torch::kInt64).item<int64_t>();
  const auto half = static_cast<int64_t>(half_size * static_cast<double>(length));
  return {std::max(center - half, int64_t{0}), std::min(center + half, length)};
}

// Like torchvision.transforms.v2.CutMix.
class Cutmix : public BatchTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add(
        "alpha", alpha_,
        {.min = 0,
         .max = 1000,
         .min_excluded = true,
         .doc = "The fraction of each image that is kept has the distribution Beta(alpha, alpha). A larger fraction is kept if the pasted "
                "box extends beyond the image's edges."});
  }

  bool needs_images() const override { return true; }

  Mix apply(const torch::Tensor& images, at::Generator& generator) const override {
    const int64_t height = images.size(2);
    const int64_t width = images.size(3);
    const double half_size = 0.5 * std::sqrt(1 - draw_beta(alpha_, generator));
    const Span columns = draw_span(width, half_size, generator);
    const Span rows = draw_span(height, half_size, generator);
    const auto box_of = [&](const torch::Tensor& x) { return x.slice(2, rows.begin, rows.end).slice(3, columns.begin, columns.end); };
    auto mixed = images.clone();
    box_of(mixed).copy_(previous_samples(box_of(images)));
    const double replaced = static_cast<double>(rows.size() * columns.size()) / static_cast<double>(width * height);
    return {std::move(mixed), 1 - replaced};
  }

 private:
  double alpha_ = 1;
};

}  // namespace

void add_mix(BatchTransformRegistry& registry) {
  add_batch_transform<Mixup>(
      registry, "mixup",
      "Replaces each sample and its label by weighted means with another sample and its label. Each batch has one random weight.");
  add_batch_transform<Cutmix>(registry, "cutmix",
                              "Replaces a box of each image by the same box of another image, and mixes their labels in the same "
                              "proportion. Each batch has one random box.");
}

}  // namespace trainer::data
