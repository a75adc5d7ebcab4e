#include "train/engine/histograms.h"

#include <cmath>
#include <utility>

namespace trainer::engine {
namespace {

// A histogram without its bins. `values`: float64, at least one.
reporting::Histogram totals_of(const std::string& name, const torch::Tensor& values) {
  const auto [least, greatest] = values.aminmax();
  const auto totals = torch::stack({least, greatest, values.sum(), values.square().sum()}).cpu();
  const auto* total = totals.const_data_ptr<double>();
  return {.name = name, .min = total[0], .max = total[1], .sum = total[2], .sum_squares = total[3]};
}

}  // namespace

std::optional<reporting::Histogram> make_histogram(const std::string& name, const torch::Tensor& tensor) {
  constexpr int64_t kIntervals = 64;
  const torch::NoGradGuard no_grad;
  if (tensor.numel() == 0) return std::nullopt;
  // Converted to float64, so that the sums of large tensors are exact enough.
  auto values = tensor.detach().to(torch::kFloat64).flatten();
  auto histogram = totals_of(name, values);
  // If an element is NaN, both `min` and `max` are NaN.
  if (!std::isfinite(histogram.min) || !std::isfinite(histogram.max)) {
    values = values.masked_select(values.isfinite());
    if (values.numel() == 0) return std::nullopt;
    histogram = totals_of(name, values);
  }
  if (histogram.min == histogram.max) {
    histogram.limits = {histogram.max};
    histogram.counts = {values.numel()};
    return histogram;
  }
  // Computed on the CPU, because the GPU kernel is not allowed under runtime.deterministic.
  const auto counts = torch::histc(values.cpu(), kIntervals, histogram.min, histogram.max);
  const double width = (histogram.max - histogram.min) / kIntervals;
  for (int64_t i = 0; i < kIntervals; ++i) {
    histogram.limits.push_back(i + 1 == kIntervals ? histogram.max : histogram.min + width * static_cast<double>(i + 1));
    histogram.counts.push_back(static_cast<int64_t>(counts.const_data_ptr<double>()[i]));
  }
  return histogram;
}

Histograms::Histograms(const Parts& parts, const EpochPart& part, int64_t every_epochs, reporting::Sink& reporter)
    : parts_(parts), part_(part), every_epochs_(every_epochs), reporter_(reporter) {}

bool Histograms::is_due(int64_t step) const {
  return (part_.epoch + 1) % every_epochs_ == 0 && step + 1 == part_.first_step + part_.num_steps;
}

void Histograms::on_gradients(int64_t step) {
  if (!is_due(step)) return;
  // Reading gradients waits for the device, which may be waiting for other ranks.
  const distributed::Activity::Wait wait(parts_.network.placement.device.is_cpu() ? nullptr : parts_.ranks.activity.get());
  gradients_.clear();
  const double scale = parts_.network.grad_scaler ? parts_.network.grad_scaler->current_scale().item<double>() : 1;
  for (const auto& parameter : parts_.network.model->named_parameters()) {
    const auto& gradient = parameter.value().grad();
    if (!gradient.defined()) continue;
    if (auto histogram = make_histogram(parameter.key(), scale == 1 ? gradient : gradient.to(torch::kFloat64) / scale)) {
      gradients_.push_back(std::move(*histogram));
    }
  }
}

void Histograms::after_step(int64_t step) {
  if (!is_due(step)) return;
  reporting::HistogramsEvent event{.epoch = part_.epoch, .step = step + 1, .gradients = std::exchange(gradients_, {})};
  for (const auto& parameter : parts_.network.model->named_parameters()) {
    if (auto histogram = make_histogram(parameter.key(), parameter.value())) event.parameters.push_back(std::move(*histogram));
  }
  reporter_.on_histograms(event);
}

}  // namespace trainer::engine
