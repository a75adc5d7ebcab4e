#pragma once
// How far the probabilities of a network's predictions are from the fractions that are right.

#include <torch/torch.h>

#include <vector>

#include "trainer/distributed.h"
#include "trainer/events.h"

namespace trainer::task {

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

}  // namespace trainer::task
