#pragma once
// Measures the decisions of an operating point (inference/operating_point.h) on labelled samples.

#include <torch/types.h>

#include <optional>

#include "inference/operating_point.h"
#include "trainer/distributed.h"

namespace trainer::evaluation {

// A measured value and its 95 % confidence interval: by bootstrap for the calibration error (percentiles of 1,000 resamples), by Wilson's
// formula for fractions.
struct Measured {
  double value = 0;
  double low = 0;
  double high = 0;
};

// Fractions of samples from the decisions of an operating point; a fraction with the denominator 0 is not set.
struct DecisionResult {
  std::optional<Measured> accuracy;  // of the samples that are not rejected
  std::optional<Measured> rejected;  // of all samples
  // For the class with a threshold: the fraction of its samples that are not assigned to it, and of the other samples that are.
  std::optional<Measured> misses;
  std::optional<Measured> false_alarms;
};

class DecisionMeter {
 public:
  explicit DecisionMeter(const inference::OperatingPoint& point);
  // `probabilities`: float64 [N, classes]; `labels`: int64 [N]; both on the CPU.
  void add(const torch::Tensor& probabilities, const torch::Tensor& labels);
  // Collective: sums over the ranks of `group`.
  void reduce(const distributed::ProcessGroup& group);
  DecisionResult result() const;

 private:
  inference::OperatingPoint point_;
  torch::Tensor counts_;  // int64 [4][2]: hits and samples for each member of DecisionResult
};

}  // namespace trainer::evaluation
