#pragma once
// Targets are class labels.

#include "task/task.h"

namespace trainer::task {

// A metric of a validation with classes: set `count` or `from_confusion`. docs/extending.md shows how to add one.
struct ClassMetric {
  reporting::MetricInfo info;
  // Data sets with fewer classes do not have this metric; the text is for messages: "five classes".
  int64_t min_classes = 1;
  std::string min_classes_text = {};
  // The metric is the fraction of the samples that this counts.
  CountHits count = {};
  // The value, from how often each class was taken for each: int64 [actual][predicted] on the CPU.
  std::function<double(const torch::Tensor& confusion)> from_confusion = {};
};

// The metrics of a validation, the loss left out.
std::vector<ClassMetric> class_metrics();

std::unique_ptr<Task> make_classification(std::unique_ptr<nn::Loss> loss, std::vector<ClassMetric> metrics = class_metrics());

}  // namespace trainer::task
