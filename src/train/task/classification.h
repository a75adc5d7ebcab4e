#pragma once
// Classification: targets are class labels.

#include <torch/torch.h>

#include <vector>

#include "trainer/distributed.h"
#include "trainer/events.h"
#include "trainer/task.h"

namespace trainer::task {

// How far the probabilities of a network's predictions are from the fractions that are right.

inline constexpr int64_t kCalibrationBins = 15;

// Counts the samples, the hits and the sum of the confidences of each bin, as integers: the results do not depend on the order of the
// samples. All but expected_error() and bins() is on the device.
class CalibrationMeter {
 public:
  explicit CalibrationMeter(torch::Device device);
  // `confidence`: float32 or float64 [N], the probability of the predicted class, 0 to 1. `is_hit`: bool [N].
  void add(const torch::Tensor& confidence, const torch::Tensor& is_hit);
  // Collective, once: sums over the ranks of `group`, and waits for the device.
  void reduce(const distributed::ProcessGroup& group);

  // After reduce(). The mean over the samples of |accuracy - mean confidence| of their bin, that of torchmetrics'
  // MulticlassCalibrationError(n_bins=15, norm="l1"): bins include their lower limit, and the samples of confidence 1 form one of their
  // own.
  double expected_error() const;
  // After reduce(). kCalibrationBins bins; confidence 1 belongs to the last one.
  std::vector<reporting::CalibrationBin> bins() const;

 private:
  torch::Tensor sums_;  // int64 [3][kCalibrationBins + 1]: samples, hits, confidences in units of 2^-32
};

// The metrics of a validation without the loss: those of the program and those that were added.
const std::vector<ClassMetric>& class_metrics();

// Throws UsageError for a loss of other targets.
std::unique_ptr<Task> make_classification(std::unique_ptr<nn::Loss> loss);

// The samples that a network is most sure of and wrong about.

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
