#include "train/task/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "trainer/error.h"

namespace trainer::task {
namespace {

struct NoOptions {
  void describe(KeyTable&) {}
};

void add_missing(std::vector<reporting::MetricInfo>& to, const std::vector<reporting::MetricInfo>& from) {
  for (const auto& info : from) {
    if (std::ranges::find(to, info.name, &reporting::MetricInfo::name) == to.end()) to.push_back(info);
  }
}

}  // namespace

Task::Pass Task::forward(models::Model& model, const torch::Tensor& images, const torch::Tensor& targets) const {
  return with_loss(model.forward(images), targets);
}

Task::Pass Task::evaluate(models::Model& model, const torch::Tensor& images, const torch::Tensor& targets, TestTimeAugmentation tta) const {
  return with_loss(average_over_views(images, tta, [&model](const torch::Tensor& view) { return model.forward(view); }), targets);
}

std::unique_ptr<ValidationMeter> Task::make_validation_meter(torch::Device device, int64_t /*num_outputs*/, int64_t num_batches) const {
  return std::make_unique<ValidationMeter>(device, num_batches);
}

void check_metric_name(const std::string& name) {
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  constexpr std::array kReserved = {"confusion",   "epoch",   "event", "is_best", "lr",
                                    "num_samples", "seconds", "step",  "time",    "waited_seconds"};
  if (!name.empty() && std::ranges::all_of(name, is_plain) && std::ranges::find(kReserved, name) == kReserved.end()) return;
  throw std::logic_error(
      "a metric cannot be called \"" + name +
      "\", which is empty, reserved or has characters other than lower-case letters, digits and underscores; choose another name");
}

reporting::MetricColumns Task::metrics() const {
  reporting::MetricColumns columns{.train = {loss_info()}, .validation = {loss_info()}};
  for (const auto& metric : train_metrics()) {
    check_metric_name(metric.info.name);
    columns.train.push_back(metric.info);
  }
  for (const auto& info : validation_metrics()) {
    check_metric_name(info.name);
    columns.validation.push_back(info);
  }
  return columns;
}

Task::Pass Task::with_loss(torch::Tensor outputs, const torch::Tensor& targets) const {
  // Numbers are float64, but LibTorch's losses have no gradient if outputs and targets differ in type.
  const bool are_wide = targets.scalar_type() == torch::kFloat64;
  const auto compared = are_wide ? targets.to(c10::promoteTypes(outputs.scalar_type(), torch::kFloat32)) : targets;
  // A mean over no samples is NaN, but the gradient of an empty batch must be zero.
  auto loss = outputs.size(0) > 0 ? (*loss_)(outputs, compared) : outputs.sum() * 0;
  auto weight = weighs_samples() ? loss_->sample_weights(compared).sum() : torch::Tensor();
  return {.outputs = std::move(outputs), .loss = std::move(loss), .weight = std::move(weight)};
}

std::string Task::set_target_summary(const std::optional<data::TargetSummary>& summary) {
  target_summary_ = summary;
  if (!summary || loss_ == nullptr || !loss_->needs_class_counts()) return "";
  constexpr size_t kMostShown = 8;
  const auto weights = loss_->set_class_counts(summary->num_samples, summary->class_counts);
  std::string text;
  for (size_t i = 0; i < std::min(weights.size(), kMostShown); ++i) text += fmt::format(" {:.4g}", weights[i]);
  return fmt::format("loss.{}: auto is{}{}", loss_->class_weights_key(), text, weights.size() > kMostShown ? " …" : "");
}

std::optional<Task::Mismatch> Task::refusal_of_classes(int64_t num_classes) const {
  const auto text = loss_ == nullptr ? "" : loss_->refusal_of_classes(num_classes);
  return text.empty() ? std::nullopt : std::optional(Mismatch{"loss." + loss_->class_weights_key(), text});
}

TaskRegistry& task_registry() {
  static auto registry = [] {
    TaskRegistry tasks("task");
    tasks.add<NoOptions>("classification",
                         "One class per image; measures top1, top5, macro F1, balanced accuracy, MCC and the calibration error.",
                         [](const NoOptions&, std::unique_ptr<nn::Loss> loss) { return make_classification(std::move(loss)); });
    tasks.add<NoOptions>("multi_label",
                         "Any number of classes per image; measures the mean average precision, and F1 and exact matches with the best "
                         "threshold of each class.",
                         [](const NoOptions&, std::unique_ptr<nn::Loss> loss) { return make_multi_label(std::move(loss)); });
    tasks.add<RegressionOptions>(
        "regression", "One or more numbers per sample; measures their mean absolute error, RMSE and R².",
        [](const RegressionOptions& options, std::unique_ptr<nn::Loss> loss) { return make_regression(std::move(loss), options); });
    return tasks;
  }();
  return registry;
}

std::string default_task(const nn::Loss& loss, bool is_multi_label) {
  if (is_multi_label && loss.has_independent_classes()) return "multi_label";
  return loss.has_classes() ? "classification" : "regression";
}

reporting::MetricColumns all_metrics() {
  reporting::MetricColumns all;
  for (const auto& name : task_registry().names()) {
    const auto metrics = task_registry().make(task_registry().configure(name), nullptr)->metrics();
    add_missing(all.train, metrics.train);
    add_missing(all.validation, metrics.validation);
  }
  return all;
}

reporting::MetricInfo loss_info() { return {.name = "loss"}; }

TrainMeter::TrainMeter(torch::Device device, std::vector<MeanMetric> metrics, bool weighs_samples)
    : metrics_(std::move(metrics)), weighs_samples_(weighs_samples) {
  const auto num_sums = metrics_.size() + (weighs_samples_ ? 3 : 2);
  sums_ = torch::zeros({static_cast<int64_t>(num_sums)}, torch::TensorOptions(device).dtype(torch::kFloat64));
  marked_ = sums_.clone();
}

void TrainMeter::add(const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets, int64_t size,
                     const torch::Tensor& weight) {
  if (size == 0) return;
  const torch::NoGradGuard no_grad;
  if (weight.defined()) {
    sums_[0].add_(loss.to(torch::kFloat64) * weight);
  } else {
    sums_[0].add_(loss, size);
  }
  if (weighs_samples_) weight.defined() ? sums_[-2].add_(weight) : sums_[-2].add_(size);
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
  measured.metrics[0].value = mean_of(values[0], weighs_samples_ ? values[host.numel() - 2] : num_samples);
  for (size_t i = 0; i < metrics_.size(); ++i) measured.metrics.push_back({metrics_[i].info, mean_of(values[i + 1], num_samples)});
  return measured;
}

void TrainMeter::reset() { sums_.zero_(); }
void TrainMeter::mark() { marked_.copy_(sums_); }
void TrainMeter::rewind() { sums_.copy_(marked_); }
void TrainMeter::rewind_if(const torch::Tensor& condition) { at::where_out(sums_, condition, marked_, sums_); }
state::Tree TrainMeter::state() const { return sums_.to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true); }
void TrainMeter::load_state(const state::View& view) { view.copy_to(sums_); }

ValidationMeter::ValidationMeter(torch::Device device, int64_t num_batches)
    : sums_(torch::zeros({2 * num_batches + 1}, torch::TensorOptions(device).dtype(torch::kFloat64))) {}

void ValidationMeter::add(const EvaluatedBatch& batch, const torch::Tensor& loss, const torch::Tensor& /*outputs*/,
                          const torch::Tensor& /*targets*/) {
  const torch::NoGradGuard no_grad;
  auto weight = sums_[sums_.numel() / 2 + batch.number];
  batch.weight.defined() ? weight.copy_(batch.weight) : weight.fill_(batch.size);
  sums_[batch.number] = loss.to(torch::kFloat64) * weight;
  sums_[-1].add_(batch.size);
}

Measurement ValidationMeter::read(const distributed::ProcessGroup& group) {
  // Each batch belongs to one rank; the other ranks add zeros.
  group.all_reduce(sums_);
  const auto host = group.to_host(sums_);
  const auto* values = host.const_data_ptr<double>();
  const auto num_batches = host.numel() / 2;
  double sum = 0;
  double weight = 0;
  for (int64_t i = 0; i < num_batches; ++i) {
    sum += values[i];
    weight += values[num_batches + i];
  }
  Measurement measured{.num_samples = static_cast<int64_t>(values[2 * num_batches])};
  measured.metrics[0].value = mean_of(sum, weight);
  return measured;
}

}  // namespace trainer::task
