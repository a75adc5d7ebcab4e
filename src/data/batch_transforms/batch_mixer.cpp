#include "data/batch_transforms/batch_mixer.h"

#include <ATen/CPUGeneratorImpl.h>

#include "trainer/random.h"
#include "trainer/torch.h"

namespace trainer::data {

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

torch::Tensor previous_samples(const torch::Tensor& x) {
  auto previous = at::empty_like(x);
  previous.slice(0, 0, 1).copy_(x.slice(0, -1));
  previous.slice(0, 1).copy_(x.slice(0, 0, -1));
  return previous;
}

torch::Tensor mix_with_previous(const torch::Tensor& x, double weight) { return previous_samples(x).mul_(1 - weight).add_(x.mul(weight)); }

double draw_beta(double alpha, at::Generator& generator) {
  return at::_sample_dirichlet(torch::full({2}, alpha, torch::kFloat32), generator)[0].item<double>();
}

}  // namespace trainer::data
