#pragma once
// Classification: targets are class labels.

#include "task/calibration.h"
#include "task/task.h"

namespace trainer::task {

// A metric of a validation with classes: set one of the three functions. docs/extending.md shows how to add one.
struct ClassMetric {
  reporting::MetricInfo info;
  // The metric does not exist for data sets with fewer classes. The text is for messages: "five classes".
  int64_t min_classes = 1;
  std::string min_classes_text = {};
  // If set, the metric is the counted fraction of the samples.
  CountHits count = {};
  // If set, computes the metric from the number of samples of each actual and predicted class: int64 [actual][predicted] on the CPU.
  std::function<double(const torch::Tensor& confusion)> from_confusion = {};
  std::function<double(const CalibrationMeter& calibration)> from_calibration = {};
};

// The metrics of a validation without the loss.
std::vector<ClassMetric> class_metrics();

std::unique_ptr<Task> make_classification(std::unique_ptr<nn::Loss> loss, std::vector<ClassMetric> metrics = class_metrics());

}  // namespace trainer::task
