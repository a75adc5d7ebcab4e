#pragma once
// The samples that a network is most sure of and wrong about.

#include <torch/torch.h>

#include <vector>

#include "trainer/distributed.h"
#include "trainer/events.h"

namespace trainer::task {

inline constexpr int64_t kMostMistakes = 64;

// Keeps the kMostMistakes most confident ones on the device; of equally confident ones those with the smallest index, so that the result
// does not depend on the order of the samples.
class MistakeList {
 public:
  explicit MistakeList(torch::Device device);
  // `confidence`, float32 or float64 [N], is compared as float32. `predicted`, `labels`: int64 [N]. `first_index`: of the first of them;
  // the others follow. At most 2^32 samples.
  void add(const torch::Tensor& confidence, const torch::Tensor& predicted, const torch::Tensor& labels, int64_t first_index);
  // Collective: the most confident ones of all ranks of `group`, the most confident first. Waits for the device.
  std::vector<reporting::Mistake> read(const distributed::ProcessGroup& group) const;

 private:
  // int64 [3][kMostMistakes]: what they are ordered by (the bits of the confidence, then of the index's complement; 0: no mistake), the
  // labels, the predictions.
  torch::Tensor kept_;
};

}  // namespace trainer::task
