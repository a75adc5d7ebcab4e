#pragma once
// What the decisions of an operating point (inference/operating_point.h) are worth on labelled samples.

#include <torch/types.h>

#include <optional>

#include "inference/operating_point.h"
#include "trainer/distributed.h"

namespace trainer::session {

// A measured value and its 95 % interval: by bootstrap of the calibration error (percentiles of 1,000 resamples), of parts by Wilson's
// formula.
struct Measured {
  double value = 0;
  double low = 0;
  double high = 0;
};

// What the decisions of an operating point are worth.
// Not set: there are no samples of which it would be a part.
struct DecisionResult {
  std::optional<Measured> accuracy;  // of the samples that are not rejected
  std::optional<Measured> rejected;  // part of all samples
  // Of the class with a threshold: the part of its samples that are decided for another class, and of the others that are decided for it.
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
  torch::Tensor counts_;  // int64 [4][2]: hits and samples of each member of DecisionResult
};

}  // namespace trainer::session
