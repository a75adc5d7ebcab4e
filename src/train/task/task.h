#pragma once
// The tasks of the program (trainer/task.h), and what they have in common.

#include <torch/torch.h>

#include <functional>

#include "trainer/options.h"
#include "trainer/task.h"

namespace trainer::task {

// Targets are floating-point vectors; the loss is the only metric. Throws UsageError for a loss of other targets.
std::unique_ptr<Task> make_regression(std::unique_ptr<nn::Loss> loss);

// The task of an experiment that names none.
std::string default_task(const nn::Loss& loss);

// The metrics of all tasks, each once. Tables and checkpoints have these columns for every task, empty if the task lacks the metric.
reporting::MetricColumns all_metrics();

// Test-time augmentation: a network's outputs, averaged over several views of the same images.

// `images`: [N, C, H, W], N may be 0; `forward` returns the outputs [N, K] of such a batch. Returns the mean outputs over the views of
// `tta`, in float32 where `forward` returns a type of lower precision; for `none` what `forward(images)` returns. Views have the dtype,
// device and memory format of `images`. Shifted views need H, W >= 2.
torch::Tensor average_over_views(const torch::Tensor& images, TestTimeAugmentation tta,
                                 const std::function<torch::Tensor(const torch::Tensor&)>& forward);

}  // namespace trainer::task
