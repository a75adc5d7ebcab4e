#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "reporting/values.h"
#include "train/task/task.h"
#include "trainer/error.h"

namespace trainer::task {
namespace {

// MAE and RMSE are over all numbers of all samples; R² is the mean of the R² of each number, as in torchmetrics' R2Score.
const std::array<reporting::MetricInfo, 3>& regression_metrics() {
  static const std::array<reporting::MetricInfo, 3> infos = {{{.name = "mae"}, {.name = "rmse"}, {.name = "r2", .higher_is_better = true}}};
  return infos;
}

torch::Tensor sum_of_absolute_errors(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return (outputs.to(torch::kFloat64) - targets.to(torch::kFloat64)).abs().mean(1).sum();
}

// Sums the errors of each batch, and keeps some of the predictions for a plot.
class RegressionMeter : public ValidationMeter {
 public:
  // `offset`: approximate mean of the targets, float64 [numbers] on the device, which is subtracted for precision.
  RegressionMeter(torch::Device device, int64_t num_batches, torch::Tensor offset)
      : ValidationMeter(device, num_batches), offset_(std::move(offset)) {
    const auto num_numbers = offset_.size(0);
    const auto num_points = std::clamp(kMostValues / num_numbers, int64_t{1}, kMostPoints);
    // Points come from every batch or, if there are more batches than points, from every stride_-th one.
    stride_ = std::max<int64_t>((num_batches + num_points - 1) / num_points, 1);
    const auto num_used = (num_batches + stride_ - 1) / stride_;
    const auto points_of_batch = num_points / std::max<int64_t>(num_used, 1);
    sums_ = torch::zeros({num_batches, 4, num_numbers}, offset_.options());
    points_ = torch::zeros({num_used, points_of_batch, 2, num_numbers}, offset_.options());
    point_counts_ = torch::zeros({num_used}, offset_.options().dtype(torch::kInt64));
  }

  void add(const EvaluatedBatch& batch, const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets) override {
    ValidationMeter::add(batch, loss, outputs, targets);
    const torch::NoGradGuard no_grad;
    const auto error = outputs.to(torch::kFloat64) - targets.to(torch::kFloat64);
    const auto shifted = targets.to(torch::kFloat64) - offset_;
    sums_[batch.number].copy_(at::stack({error.abs().sum(0), error.square().sum(0), shifted.sum(0), shifted.square().sum(0)}));
    if (batch.number % stride_ != 0) return;
    const auto step = std::max<int64_t>(targets.size(0) / points_.size(1), 1);
    const auto count = std::min(points_.size(1), targets.size(0));
    const auto some = [&](const torch::Tensor& all) { return all.slice(0, 0, count * step, step).to(torch::kFloat64); };
    points_[batch.number / stride_].slice(0, 0, count).copy_(at::stack({some(targets), some(outputs)}, 1));
    point_counts_[batch.number / stride_].fill_(count);
  }

  Measurement read(const distributed::ProcessGroup& group) override {
    auto measured = ValidationMeter::read(group);
    // Each batch belongs to one rank; the other ranks add zeros.
    for (const auto& tensor : {sums_, points_, point_counts_}) group.all_reduce(tensor);
    const auto sums = group.to_host(sums_).sum(0);
    const auto* value = sums.const_data_ptr<double>();
    const auto num_numbers = static_cast<size_t>(sums.size(1));
    const auto num_samples = static_cast<double>(measured.num_samples);
    double absolute = 0, squared = 0, r2 = 0;
    for (size_t i = 0; i < num_numbers && measured.num_samples > 0; ++i) {
      const double of_number = value[i];
      const double squares = value[num_numbers + i];
      const double sum = value[2 * num_numbers + i];
      const double variation = value[3 * num_numbers + i] - sum * sum / num_samples;
      // If all targets are equal, the result is that of torchmetrics.
      const double explained = variation > 0 ? 1 - squares / variation : squares == 0 ? 1 : 0;
      measured.numbers.numbers.push_back({of_number / num_samples, std::sqrt(squares / num_samples), explained});
      absolute += of_number;
      squared += squares;
      r2 += explained;
    }
    const auto num_values = num_samples * static_cast<double>(num_numbers);
    const std::array metrics = {mean_of(absolute, num_values), std::sqrt(mean_of(squared, num_values)),
                                mean_of(r2, static_cast<double>(num_numbers))};
    for (size_t i = 0; i < metrics.size(); ++i) measured.metrics.push_back({regression_metrics()[i], metrics[i]});
    read_points(group, measured.numbers);
    return measured;
  }

 private:
  static constexpr int64_t kMostPoints = 1000;
  static constexpr int64_t kMostValues = 100'000;

  void read_points(const distributed::ProcessGroup& group, reporting::NumberResults& results) const {
    const auto points = group.to_host(points_);
    const auto counts = group.to_host(point_counts_);
    const auto num_numbers = points.size(3);
    const auto* value = points.const_data_ptr<double>();
    for (int64_t batch = 0; batch < points.size(0); ++batch) {
      for (int64_t i = 0; i < counts.const_data_ptr<int64_t>()[batch]; ++i) {
        const auto* target = value + (batch * points.size(1) + i) * 2 * num_numbers;
        results.targets.insert(results.targets.end(), target, target + num_numbers);
        results.predictions.insert(results.predictions.end(), target + num_numbers, target + 2 * num_numbers);
      }
    }
  }

  torch::Tensor offset_;
  int64_t stride_ = 1;          // only every stride_-th batch has points
  torch::Tensor sums_;          // float64 [batches][|error|, error², shifted target, its square][numbers]
  torch::Tensor points_;        // float64 [every stride_-th batch][some of its samples][target, prediction][numbers]
  torch::Tensor point_counts_;  // int64 [every stride_-th batch]: its number of points
};

class Regression : public Task {
 public:
  Regression(std::unique_ptr<nn::Loss> loss, const RegressionOptions& options)
      : Task(std::move(loss)), normalize_targets_(options.normalize_targets) {}

  std::vector<MeanMetric> train_metrics() const override { return {{regression_metrics()[0], sum_of_absolute_errors}}; }
  std::vector<reporting::MetricInfo> validation_metrics() const override {
    return {regression_metrics().begin(), regression_metrics().end()};
  }

  std::unique_ptr<ValidationMeter> make_validation_meter(torch::Device device, int64_t num_outputs, int64_t num_batches) const override {
    const auto in_memory = torch::TensorOptions(device).dtype(torch::kFloat64);
    const auto& summary = target_summary();
    auto offset = summary ? torch::tensor(summary->mean, torch::kFloat64).to(device) : torch::zeros({num_outputs}, in_memory);
    return std::make_unique<RegressionMeter>(device, num_batches, std::move(offset));
  }

  std::vector<Mismatch> mismatches(const Setup& setup) const override {
    if (setup.num_classes == 0) return {};
    return {{"loss.name",
             fmt::format(
                 "{} needs floating-point targets, but {} has class labels; choose a loss for class labels, such as cross_entropy or bce",
                 setup.loss, setup.dataset)}};
  }

  bool needs_target_summary() const override { return normalize_targets_; }
  std::string set_target_summary(const std::optional<data::TargetSummary>& given) override {
    Task::set_target_summary(given);
    mean_ = deviation_ = torch::Tensor();
    if (!given) return "";
    const auto& summary = *given;
    const torch::InferenceMode off(false);
    used_mean_ = mean_ = torch::tensor(summary.mean, torch::kFloat64);
    used_deviation_ = deviation_ = torch::tensor(summary.deviation, torch::kFloat64);
    constexpr size_t kMostShown = 2;
    if (summary.mean.size() > kMostShown) {
      return fmt::format("targets are normalised: {} numbers, over {} training samples", summary.mean.size(), summary.num_samples);
    }
    const auto shown = [](const std::vector<double>& values) {
      std::vector<std::string> texts(values.size());
      std::ranges::transform(values, texts.begin(), reporting::format_target);
      return join(texts, ", ");
    };
    return fmt::format("targets are normalised: mean {}, standard deviation {}", shown(summary.mean), shown(summary.deviation));
  }

 private:
  Pass with_loss(torch::Tensor outputs, const torch::Tensor& targets) const override {
    if (!mean_.defined()) return Task::with_loss(std::move(outputs), targets);
    if (used_mean_.device() != targets.device()) {
      // Copied outside inference mode, because steps that record gradients use the copies too.
      const torch::InferenceMode off(false);
      used_mean_ = mean_.to(targets.device());
      used_deviation_ = deviation_.to(targets.device());
    }
    auto pass = Task::with_loss(std::move(outputs), (targets.to(torch::kFloat64) - used_mean_) / used_deviation_);
    pass.outputs = pass.outputs.to(torch::kFloat64) * used_deviation_ + used_mean_;
    return pass;
  }

  bool normalize_targets_;
  torch::Tensor mean_;  // float64 [numbers], on the CPU; undefined: targets are not normalised
  torch::Tensor deviation_;
  // Copies of mean_ and deviation_ on the device, because a CUDA graph cannot copy from the host.
  mutable torch::Tensor used_mean_;
  mutable torch::Tensor used_deviation_;
};

}  // namespace

void RegressionOptions::describe(KeyTable& keys) {
  keys.add(
      "normalize_targets", normalize_targets,
      {.doc = "The network learns targets normalised with the mean and standard deviation of the training targets; checkpoints contain "
              "these two values. Predictions and metrics are in the unit of the original targets."});
}

std::unique_ptr<Task> make_regression(std::unique_ptr<nn::Loss> loss, const RegressionOptions& options) {
  if (loss != nullptr && loss->has_classes()) {
    throw UsageError("regression needs a loss for numbers, such as mse; choose one, or remove the task section");
  }
  return std::make_unique<Regression>(std::move(loss), options);
}

}  // namespace trainer::task
