#pragma once
// Multi-label classification: a sample belongs to any number of classes.

#include <vector>

#include "trainer/events.h"
#include "trainer/task.h"
#include "trainer/torch.h"

namespace trainer::task {

// Measurements of all samples of a validation.
struct LabelMeasurement {
  reporting::LabelResults results;
  // Over the classes with samples. torchmetrics' MultilabelAveragePrecision counts the others as 0, which depends only on which classes the
  // data lacks, not on the network.
  double mean_average_precision = 0;
  double mean_f1 = 0;      // over the same classes, each at its best threshold
  double exact_match = 0;  // the fraction of the samples whose classes are all predicted correctly at those thresholds
};
// `probabilities`: float32 [N, classes]; `targets`: bool [N, classes]; both on the CPU. The results do not depend on the order of the
// samples.
LabelMeasurement measure_labels(const torch::Tensor& probabilities, const torch::Tensor& targets);

// Measures the samples at thresholds that were chosen before, such as those of a checkpoint. measure_labels() chooses the thresholds on the
// samples that it measures, which makes its F1 and exact matches too good.
class ThresholdMeter {
 public:
  explicit ThresholdMeter(std::vector<double> thresholds);
  // `probabilities`: float64 [N, classes]; `targets`: numbers [N, classes]; both on the CPU.
  void add(const torch::Tensor& probabilities, const torch::Tensor& targets);
  // Collective: sums over the ranks of `group`.
  void reduce(const distributed::ProcessGroup& group);
  // Replaces the results of measure_labels() for the same samples by those at these thresholds. Returns the metrics that were replaced.
  reporting::Metrics replace_in(Measurement& measured) const;

 private:
  std::vector<double> thresholds_;
  torch::Tensor counts_;   // int64 [3][classes]: samples that are assigned to the class and belong to it, that are assigned, that belong
  torch::Tensor matches_;  // int64 [2]: samples whose classes are all right, samples
};

}  // namespace trainer::task
