#pragma once
// Multi-label classification: a sample belongs to any number of classes.

#include <memory>

#include "trainer/events.h"
#include "trainer/task.h"
#include "trainer/torch.h"

namespace trainer::task {

// Throws UsageError for a loss that does not treat each class independently.
std::unique_ptr<Task> make_multi_label(std::unique_ptr<nn::Loss> loss);

// Measurements of all samples of a validation.
struct LabelMeasurement {
  reporting::LabelResults results;
  double mean_average_precision = 0;  // over the classes with samples, as in torchmetrics' MultilabelAveragePrecision
  double mean_f1 = 0;                 // over the same classes, each at its best threshold
  double exact_match = 0;             // the fraction of the samples whose classes are all predicted correctly at those thresholds
};
// `probabilities`: float32 [N, classes]; `targets`: bool [N, classes]; both on the CPU. The results do not depend on the order of the
// samples.
LabelMeasurement measure_labels(const torch::Tensor& probabilities, const torch::Tensor& targets);

}  // namespace trainer::task
