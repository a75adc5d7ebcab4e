#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

#include "data/batch_transforms/batch_mixer.h"
#include "trainer/random.h"
#include "trainer/torch.h"

namespace trainer::data {
namespace {

// Functions of torchvision/transforms/v2/_augment.py.

// Equals x.roll(1, 0), in the memory format of `x`; on a GPU at::roll does not keep channels_last.
torch::Tensor previous_samples(const torch::Tensor& x) {
  auto previous = at::empty_like(x);
  previous.slice(0, 0, 1).copy_(x.slice(0, -1));
  previous.slice(0, 1).copy_(x.slice(0, 0, -1));
  return previous;
}

// weight * x + (1 - weight) * previous_samples(x), rounded as in torchvision.
torch::Tensor mix_with_previous(const torch::Tensor& x, double weight) { return previous_samples(x).mul_(1 - weight).add_(x.mul(weight)); }

// A sample of Beta(alpha, alpha), the same as torch.distributions.Beta with the same generator, which must be on the CPU.
double draw_beta(double alpha, at::Generator& generator) {
  return at::_sample_dirichlet(torch::full({2}, alpha, torch::kFloat32), generator)[0].item<double>();
}

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

template <class T>
void add(BatchTransformRegistry& registry, const char* name, const char* doc) {
  registry.add<T>(name, doc, [](const T& transform) { return std::make_shared<T>(transform); });
}

}  // namespace

void add_mix(BatchTransformRegistry& registry) {
  add<Mixup>(registry, "mixup",
             "Replaces each sample and its label by weighted means with another sample and its label. Each batch has one random weight.");
  add<Cutmix>(
      registry, "cutmix",
      "Replaces a box of each image by the same box of another image, and mixes their labels in the same proportion. Each batch has "
      "one random box.");
}

BatchMixer::BatchMixer(const std::vector<ComponentConfig>& components, int64_t num_classes, uint64_t seed)
    : num_classes_(num_classes), seed_(seed) {
  for (const auto& component : components) transforms_.push_back(batch_transform_registry().make(component));
}

BatchMixer::Mixed BatchMixer::apply(const torch::Tensor& images, const torch::Tensor& labels, int64_t step, int64_t stream) const {
  const auto seed = mix_seed(seed_, static_cast<uint64_t>(step), static_cast<uint64_t>(stream));
  return apply(images, labels, at::make_generator<at::CPUGeneratorImpl>(seed));
}

BatchMixer::Mixed BatchMixer::apply(const torch::Tensor& images, const torch::Tensor& labels, at::Generator generator) const {
  auto mix = choose(generator).apply(images, generator);
  return {std::move(mix.images), mix_with_previous(probabilities_of(labels, images), mix.weight)};
}

torch::Tensor BatchMixer::probabilities_of(const torch::Tensor& labels, const torch::Tensor& images) const {
  const auto dtype = c10::promoteTypes(images.scalar_type(), torch::kFloat32);
  return torch::zeros({labels.size(0), num_classes_}, labels.options().dtype(dtype)).scatter_(1, labels.unsqueeze(1), 1);
}

const BatchTransform& BatchMixer::choose(at::Generator& generator) const {
  if (transforms_.size() == 1) return *transforms_[0];
  const auto probabilities = torch::full({static_cast<int64_t>(transforms_.size())}, 1.0 / static_cast<double>(transforms_.size()));
  return *transforms_[static_cast<size_t>(at::multinomial(probabilities, 1, /*replacement=*/false, generator).item<int64_t>())];
}

}  // namespace trainer::data
