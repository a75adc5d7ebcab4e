#pragma once
// dataset.batch_transforms: mixes the samples of each training batch, and their labels.

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/component.h"

namespace trainer::data {

// The interface of transforms that mix the samples of a batch, and their registry. New transforms belong in mix.cpp.

// The result of BatchTransform::apply(): samples, each mixed with the previous sample of the batch.
struct Mix {
  torch::Tensor images;
  double weight = 1;  // weight of each sample's own label; the previous sample's label has 1 - weight
};

// A transform of batches and its keys.
class BatchTransform {
 public:
  // Whether apply() needs images, [N, channels, height, width].
  virtual bool needs_images() const { return false; }
  // Mixes each of `images`, [N, channels, height, width] or [N, features] with N >= 0 on any device, with the previous image, and the first
  // image with the last. The result is a new tensor of the same dtype and memory format. Draws the same random numbers as torchvision's
  // transform from `generator`, which must be on the CPU. Does not synchronize with the device.
  virtual Mix apply(const torch::Tensor& images, at::Generator& generator) const = 0;
};

using BatchTransformRegistry = Registry<std::shared_ptr<const BatchTransform>>;

BatchTransformRegistry& batch_transform_registry();

class BatchMixer {
 public:
  // `components`: at least one component of batch_transform_registry(). `seed`: the seed of all random numbers of the run.
  BatchMixer(const std::vector<ComponentConfig>& components, int64_t num_classes, uint64_t seed);

  struct Mixed {
    torch::Tensor images;   // a new tensor of mixed images; from apply_nothing(), the given tensor
    torch::Tensor targets;  // the probability of each class: [N, num_classes], float32, or float64 if the images are float64
  };

  // Applies one of the transforms, chosen with equal probability, to N >= 0 samples with `labels` int64 [N] on any device. Random numbers
  // are a function of seed, `step` and `stream`.
  Mixed apply(const torch::Tensor& images, const torch::Tensor& labels, int64_t step, int64_t stream) const;
  // Returns the unchanged samples, with their targets in the same form.
  Mixed apply_nothing(const torch::Tensor& images, const torch::Tensor& labels) const { return {images, probabilities_of(labels, images)}; }
  // Like the first apply(), but draws from `generator`, which must be on the CPU: the same numbers as RandomChoice of
  // torchvision.transforms.v2, or for a single transform as torchvision's transform.
  Mixed apply(const torch::Tensor& images, const torch::Tensor& labels, at::Generator generator) const;

 private:
  torch::Tensor probabilities_of(const torch::Tensor& labels, const torch::Tensor& images) const;
  const BatchTransform& choose(at::Generator& generator) const;

  std::vector<std::shared_ptr<const BatchTransform>> transforms_;
  int64_t num_classes_;
  uint64_t seed_;
};

}  // namespace trainer::data
