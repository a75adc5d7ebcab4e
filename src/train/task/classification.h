#pragma once
// Classification: targets are class labels.

#include <vector>

#include "trainer/distributed.h"
#include "trainer/events.h"
#include "trainer/task.h"
#include "trainer/torch.h"

namespace trainer::task {

// Calibration: how far the confidence of a network's predictions is from their accuracy.

inline constexpr int64_t kCalibrationBins = 15;

// Sums the samples, the hits and the confidences of each bin as integers, so that the results do not depend on the order of the samples.
// Everything except expected_error() and bins() runs on the device.
class CalibrationMeter {
 public:
  explicit CalibrationMeter(torch::Device device);
  // `confidence`: float32 or float64 [N], the probability of the predicted class, 0 to 1. `is_hit`: bool [N].
  void add(const torch::Tensor& confidence, const torch::Tensor& is_hit);
  // Collective: sums over the ranks of `group`, and waits for the device. To be called once.
  void reduce(const distributed::ProcessGroup& group);

  // To be called after reduce(). The mean over the samples of |accuracy - mean confidence| of the sample's bin, as in torchmetrics'
  // MulticlassCalibrationError(n_bins=15, norm="l1"): bins include their lower limit, and samples with confidence 1 form a separate bin.
  double expected_error() const;
  // To be called after reduce(). Returns kCalibrationBins bins; confidence 1 belongs to the last one.
  std::vector<reporting::CalibrationBin> bins() const;

 private:
  torch::Tensor sums_;  // int64 [3][kCalibrationBins + 1]: samples, hits, confidences in units of 2^-32
};

// The metrics of a validation without the loss: the built-in ones and those of add_class_metric().
const std::vector<ClassMetric>& class_metrics();

// The wrong predictions with the highest confidence.

inline constexpr int64_t kMostMistakes = 64;

// Keeps, on the device, the kMostMistakes wrong predictions with the highest confidence. If confidences are equal, those with the smallest
// index are kept, so the result does not depend on the order of the samples.
class MistakeList {
 public:
  explicit MistakeList(torch::Device device);
  // `confidence`, float32 or float64 [N], is compared as float32. `predicted`, `labels`: int64 [N]. `samples`: their N indices,
  // less than 2^32.
  void add(const torch::Tensor& confidence, const torch::Tensor& predicted, const torch::Tensor& labels, torch::IntArrayRef samples);
  // Collective: the wrong predictions of all ranks of `group` with the highest confidence, in descending order. Waits for the device.
  std::vector<reporting::Mistake> read(const distributed::ProcessGroup& group) const;

 private:
  // int64 [3][kMostMistakes]: the sort keys (high 32 bits: the confidence; low 32 bits: the index's complement; 0: no mistake), the labels,
  // the predictions.
  torch::Tensor kept_;
};

}  // namespace trainer::task
