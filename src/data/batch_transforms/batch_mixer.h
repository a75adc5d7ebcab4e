#pragma once
// dataset.batch_transforms: mixes the samples of each training batch, and their labels.

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch_transforms/batch_transform.h"

namespace trainer::data {

class BatchMixer {
 public:
  // `components`: at least one, of batch_transform_registry(). `seed`: of all random numbers of the run.
  BatchMixer(const std::vector<ComponentConfig>& components, int64_t num_classes, uint64_t seed);

  struct Mixed {
    torch::Tensor images;   // a new tensor, as BatchTransform::apply returns it
    torch::Tensor targets;  // the probability of each class: [N, num_classes], float32, or float64 if the images are
  };

  // One of the transforms, each with the same probability, applied to N >= 0 samples with `labels` int64 [N], on any device, for which it
  // does not wait. Random numbers are a function of seed, `step` and `stream`.
  Mixed apply(const torch::Tensor& images, const torch::Tensor& labels, int64_t step, int64_t stream) const;
  // The same with the random numbers that RandomChoice of torchvision.transforms.v2 would draw from `generator`, on the CPU; for a list of
  // one transform, with those that this transform would draw.
  Mixed apply(const torch::Tensor& images, const torch::Tensor& labels, at::Generator generator) const;

 private:
  const BatchTransform& choose(at::Generator& generator) const;

  std::vector<std::shared_ptr<const BatchTransform>> transforms_;
  int64_t num_classes_;
  uint64_t seed_;
};

}  // namespace trainer::data
