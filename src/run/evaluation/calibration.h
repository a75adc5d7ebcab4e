#pragma once
// Fits an operating point (inference/operating_point.h) to the outputs of a network for labelled images that it was not trained on.

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inference/operating_point.h"
#include "run/evaluation/decisions.h"
#include "run/evaluation/file_evaluation.h"
#include "trainer/events.h"

namespace trainer::evaluation {

struct LabelledOutputs {
  torch::Tensor logits;  // float64 [images, classes], classes >= 2
  torch::Tensor labels;  // int64 [images]
};

// The outputs for each sample of an evaluation.
struct Outputs {
  LabelledOutputs samples;
  std::vector<std::string> class_names;
  std::string name;  // of the samples
};
// Evaluates in one process. Returns nothing after a stop request. Throws like evaluate(), and UsageError if the network does not classify
// samples or its outputs are not finite.
std::optional<Outputs> compute_outputs(rank::RankContext& context, const network::NetworkFile& file, EvaluationRequest request);

// The temperature that minimises the mean cross-entropy (Guo et al.: "On Calibration of Modern Neural Networks", 2017), to machine
// precision. Throws UsageError if there is none, because the network is always right or no better than chance.
double fit_temperature(const LabelledOutputs& samples);

// The largest threshold, half-way between the probabilities of two samples, at which at most the fraction `miss_at_most` of the class's
// samples is assigned to another class. Throws UsageError if the class has no samples.
inference::OperatingPoint::Threshold fit_threshold(const torch::Tensor& probabilities, const torch::Tensor& labels, int64_t label,
                                                   double miss_at_most);

struct CalibrationResult {
  double loss = 0;             // mean cross-entropy
  Measured calibration_error;  // of 15 bins, as `trainer eval` computes it
  std::vector<reporting::CalibrationBin> bins;
};
CalibrationResult measure_calibration(const torch::Tensor& probabilities, const torch::Tensor& labels);

// How well the probability of one class separates its samples from the others.
struct PrecisionRecall {
  int64_t num_samples = 0;       // of the class
  double average_precision = 0;  // as in sklearn.metrics.average_precision_score; 0 without samples
  struct Point {
    double threshold = 0;  // samples with at least this probability count as the class
    double recall = 0;
    double precision = 0;
  };
  std::vector<Point> points;  // at most 50, of ascending recall
};
// `probabilities`: float64 [N, classes]; `labels`: int64 [N]; both on the CPU.
PrecisionRecall measure_precision_recall(const torch::Tensor& probabilities, const torch::Tensor& labels, int64_t label);

}  // namespace trainer::evaluation
