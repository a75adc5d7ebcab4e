#include "trainer/task.h"

namespace trainer::task {

reporting::MetricInfo loss_info() { return {.name = "loss"}; }

namespace {

// Those of classification; other tasks leave one of them unused, as they do in the checkpoints of all versions.
constexpr size_t kFewestSums = 3;

}  // namespace

TrainMeter::TrainMeter(torch::Device device, std::vector<MeanMetric> metrics) : metrics_(std::move(metrics)) {
  const auto num_sums = std::max(kFewestSums, metrics_.size() + 2);
  sums_ = torch::zeros({static_cast<int64_t>(num_sums)}, torch::TensorOptions(device).dtype(torch::kFloat64));
}

void TrainMeter::add(const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets, int64_t size) {
  if (size == 0) return;
  const torch::NoGradGuard no_grad;
  sums_[0].add_(loss.to(torch::kFloat64), size);
  for (size_t i = 0; i < metrics_.size(); ++i) {
    sums_[static_cast<int64_t>(i) + 1].add_(metrics_[i].sum(outputs, targets));
  }
  sums_[-1].add_(size);
}

Measurement TrainMeter::read(const distributed::ProcessGroup& group) const {
  const auto sums = sums_.clone();
  group.all_reduce(sums);
  const auto host = group.to_host(sums);
  const auto* values = host.const_data_ptr<double>();
  const double num_samples = values[host.numel() - 1];
  Measurement measured{.num_samples = static_cast<int64_t>(num_samples)};
  measured.metrics[0].value = mean_of(values[0], num_samples);
  for (size_t i = 0; i < metrics_.size(); ++i) measured.metrics.push_back({metrics_[i].info, mean_of(values[i + 1], num_samples)});
  return measured;
}

void TrainMeter::reset() { sums_.zero_(); }
void TrainMeter::mark() { marked_ = sums_.clone(); }
void TrainMeter::rewind() { sums_.copy_(marked_); }
void TrainMeter::rewind_if(const torch::Tensor& condition) { sums_.copy_(at::where(condition, marked_, sums_)); }
state::Tree TrainMeter::state() const { return sums_.to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true); }
void TrainMeter::load_state(const state::View& view) { view.copy_to(sums_); }

ValidationMeter::ValidationMeter(torch::Device device, int64_t num_batches)
    : sums_(torch::zeros({num_batches + 1}, torch::TensorOptions(device).dtype(torch::kFloat64))) {}

void ValidationMeter::add(const EvaluatedBatch& batch, const torch::Tensor& loss, const torch::Tensor& /*outputs*/,
                          const torch::Tensor& /*targets*/) {
  const torch::NoGradGuard no_grad;
  sums_[batch.number] = loss.to(torch::kFloat64) * batch.size;
  sums_[-1].add_(batch.size);
}

Measurement ValidationMeter::read(const distributed::ProcessGroup& group) {
  // Each batch belongs to one rank; the other ranks add zeros.
  group.all_reduce(sums_);
  const auto host = group.to_host(sums_);
  const auto* values = host.const_data_ptr<double>();
  const auto num_batches = host.numel() - 1;
  double sum = 0;
  for (int64_t i = 0; i < num_batches; ++i) sum += values[i];
  Measurement measured{.num_samples = static_cast<int64_t>(values[num_batches])};
  measured.metrics[0].value = mean_of(sum, values[num_batches]);
  return measured;
}

}  // namespace trainer::task
