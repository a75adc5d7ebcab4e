// A metric: the mean over the classes that occur of the fraction of their samples that is right.

#include <torch/torch.h>
#include <trainer/registry.h>

namespace {

double balanced_accuracy(const torch::Tensor& confusion) {
  const auto num_samples = confusion.sum(1);
  const auto recall = confusion.diagonal().to(torch::kFloat64) / num_samples.clamp_min(1);
  return recall.masked_select(num_samples > 0).mean().item<double>();
}

}  // namespace

void add_balanced_accuracy() {
  trainer::register_metric(
      {.info = {.name = "balanced_accuracy", .higher_is_better = true, .format = trainer::reporting::MetricFormat::kPercent},
       .from_confusion = balanced_accuracy});
}
