// A metric: the recall of the class with the lowest recall.

#include <torch/torch.h>
#include <trainer/registry.h>

namespace {

double worst_recall(const torch::Tensor& confusion) {
  const auto num_samples = confusion.sum(1);
  const auto recall = confusion.diagonal().to(torch::kFloat64) / num_samples.clamp_min(1);
  return recall.masked_fill(num_samples == 0, 1).min().item<double>();
}

}  // namespace

void add_worst_recall() {
  trainer::register_metric(
      {.info = {.name = "worst_recall", .higher_is_better = true, .format = trainer::reporting::MetricFormat::kPercent},
       .from_confusion = worst_recall});
}
