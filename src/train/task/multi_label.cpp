#include "train/task/multi_label.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "train/task/task.h"
#include "trainer/error.h"

namespace trainer::task {
namespace {

using reporting::MetricFormat;

const std::array<reporting::MetricInfo, 3>& label_metrics() {
  static const std::array<reporting::MetricInfo, 3> infos = {
      {{.name = "map", .higher_is_better = true},
       {.name = "macro_f1", .higher_is_better = true, .is_detail = true},
       {.name = "exact_match", .higher_is_better = true, .format = MetricFormat::kPercent}}};
  return infos;
}

// `scores` and `is_of_class` of all samples, the greatest score first.
reporting::LabelResult measure_label(const float* scores, const bool* is_of_class, int64_t count) {
  reporting::LabelResult result;
  result.num_samples = std::count(is_of_class, is_of_class + count, true);
  if (result.num_samples == 0) return result;
  const auto num_samples = static_cast<double>(result.num_samples);
  int64_t hits = 0;
  int64_t hits_before = 0;  // at the previous, greater threshold
  for (int64_t i = 0; i < count; ++i) {
    hits += is_of_class[i] ? 1 : 0;
    // Samples with the same score share one threshold.
    const bool is_last = i + 1 == count;
    if (!is_last && scores[i + 1] == scores[i]) continue;
    const auto found = static_cast<double>(hits);
    const auto num_taken = static_cast<double>(i + 1);
    result.average_precision += static_cast<double>(hits - hits_before) / num_samples * (found / num_taken);
    hits_before = hits;
    const double f1 = 2 * found / (num_taken + num_samples);
    if (f1 <= result.f1) continue;
    result.f1 = f1;
    result.precision = found / num_taken;
    result.recall = found / num_samples;
    // The threshold is halfway between two scores, because rounding differs between batch sizes and must not move a sample across it.
    result.threshold = (static_cast<double>(scores[i]) + (is_last ? 0 : static_cast<double>(scores[i + 1]))) / 2;
  }
  return result;
}

// Keeps the probabilities and targets of all samples: for each class of a sample, 4 bytes and 1 byte.
class LabelMeter : public ValidationMeter {
 public:
  LabelMeter(torch::Device device, int64_t num_classes, int64_t num_batches)
      : ValidationMeter(device, num_batches), num_classes_(num_classes) {}

  void add(const EvaluatedBatch& batch, const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets) override {
    ValidationMeter::add(batch, loss, outputs, targets);
    const torch::NoGradGuard no_grad;
    probabilities_.push_back(
        outputs.to(c10::promoteTypes(outputs.scalar_type(), torch::kFloat32)).sigmoid().nan_to_num(0).to(torch::kFloat32));
    targets_.push_back(targets > 0.5);
  }

  Measurement read(const distributed::ProcessGroup& group) override {
    auto measured = ValidationMeter::read(group);
    const auto [probabilities, targets] = gather(group);
    auto labels = measure_labels(probabilities, targets);
    const std::array metrics = {labels.mean_average_precision, labels.mean_f1, labels.exact_match};
    for (size_t i = 0; i < metrics.size(); ++i) measured.metrics.push_back({label_metrics()[i], metrics[i]});
    measured.labels = std::move(labels.results);
    return measured;
  }

 private:
  // The probabilities and targets of all ranks.
  std::pair<torch::Tensor, torch::Tensor> gather(const distributed::ProcessGroup& group) const {
    const auto joined = [&](const std::vector<torch::Tensor>& parts, torch::ScalarType dtype) {
      return (parts.empty() ? torch::empty({0, num_classes_}, dtype) : at::cat(parts)).cpu().contiguous();
    };
    const auto all = [&](const torch::Tensor& mine) {
      std::vector<torch::Tensor> parts;
      for (const auto& bytes : group.all_gather_bytes({static_cast<const char*>(mine.const_data_ptr()), mine.nbytes()})) {
        const auto size = static_cast<int64_t>(bytes.size() / mine.element_size()) / num_classes_;
        parts.push_back(torch::empty({size, num_classes_}, mine.options()));
        std::memcpy(parts.back().data_ptr(), bytes.data(), bytes.size());
      }
      return at::cat(parts);
    };
    return {all(joined(probabilities_, torch::kFloat32)), all(joined(targets_, torch::kBool))};
  }

  int64_t num_classes_;
  std::vector<torch::Tensor> probabilities_;  // of each batch, [N, classes] on the device
  std::vector<torch::Tensor> targets_;
};

class MultiLabel : public Task {
 public:
  using Task::Task;

  std::vector<reporting::MetricInfo> validation_metrics() const override { return {label_metrics().begin(), label_metrics().end()}; }
  std::string default_metric() const override { return label_metrics()[0].name; }
  std::unique_ptr<ValidationMeter> make_validation_meter(torch::Device device, int64_t num_outputs, int64_t num_batches) const override {
    return std::make_unique<LabelMeter>(device, num_outputs, num_batches);
  }

  std::vector<Mismatch> mismatches(const Setup& setup) const override {
    if (setup.is_multi_label) return {};
    return {
        {"task.name", fmt::format("multi_label needs targets with any number of classes per image, but {} has {}; remove the task section",
                                  setup.dataset,
                                  setup.num_classes == 0 ? "numbers"
                                  : setup.has_masks      ? "masks"
                                                         : "one class per image")}};
  }
};

}  // namespace

std::unique_ptr<Task> make_multi_label(std::unique_ptr<nn::Loss> loss) {
  if (loss != nullptr && !loss->has_independent_classes()) {
    throw UsageError("multi_label needs a loss that treats each class independently, such as bce; choose it, or remove the task section");
  }
  return std::make_unique<MultiLabel>(std::move(loss));
}

LabelMeasurement measure_labels(const torch::Tensor& probabilities, const torch::Tensor& targets) {
  const auto num_samples = probabilities.size(0);
  const auto num_classes = probabilities.size(1);
  const auto [scores, order] = probabilities.t().contiguous().sort(/*dim=*/1, /*descending=*/true);
  const auto of_classes = targets.t().contiguous();
  const auto is_of_class = of_classes.gather(1, order).contiguous();
  LabelMeasurement measured;
  auto& classes = measured.results.classes;
  std::vector<double> thresholds;
  int64_t num_used = 0;
  for (int64_t label = 0; label < num_classes; ++label) {
    const auto position = label * num_samples;
    classes.push_back(measure_label(scores.const_data_ptr<float>() + position, is_of_class.const_data_ptr<bool>() + position, num_samples));
    thresholds.push_back(classes.back().threshold);
    if (classes.back().num_samples == 0) continue;
    ++num_used;
    measured.mean_average_precision += classes.back().average_precision;
    measured.mean_f1 += classes.back().f1;
  }
  measured.mean_average_precision = mean_of(measured.mean_average_precision, static_cast<double>(num_used));
  measured.mean_f1 = mean_of(measured.mean_f1, static_cast<double>(num_used));
  const auto are_right = ((probabilities.to(torch::kFloat64) >= torch::tensor(thresholds, torch::kFloat64)) == targets).all(1);
  measured.exact_match = mean_of(static_cast<double>(are_right.sum().item<int64_t>()), static_cast<double>(num_samples));
  const auto counts = of_classes.to(torch::kFloat64).matmul(of_classes.to(torch::kFloat64).t()).to(torch::kInt64).contiguous();
  measured.results.co_occurrence = {counts.const_data_ptr<int64_t>(), counts.const_data_ptr<int64_t>() + counts.numel()};
  return measured;
}

ThresholdMeter::ThresholdMeter(std::vector<double> thresholds)
    : thresholds_(std::move(thresholds)),
      counts_(torch::zeros({3, static_cast<int64_t>(thresholds_.size())}, torch::kInt64)),
      matches_(torch::zeros({2}, torch::kInt64)) {}

void ThresholdMeter::add(const torch::Tensor& probabilities, const torch::Tensor& targets) {
  const auto is_assigned = probabilities >= torch::tensor(thresholds_, torch::kFloat64);
  const auto belongs = targets > 0.5;
  counts_ += at::stack({(is_assigned & belongs).sum(0), is_assigned.sum(0), belongs.sum(0)});
  matches_[0] += (is_assigned == belongs).all(1).sum();
  matches_[1] += targets.size(0);
}

void ThresholdMeter::reduce(const distributed::ProcessGroup& group) {
  group.all_reduce(counts_);
  group.all_reduce(matches_);
}

reporting::Metrics ThresholdMeter::replace_in(Measurement& measured) const {
  const auto counts = counts_.accessor<int64_t, 2>();
  const auto part = [](int64_t hits, int64_t all) { return mean_of(static_cast<double>(hits), static_cast<double>(all)); };
  double sum_of_f1 = 0;
  double num_used = 0;
  auto& classes = measured.labels.classes;
  for (size_t label = 0; label < classes.size(); ++label) {
    const auto column = static_cast<int64_t>(label);
    const auto found = counts[0][column];
    const auto assigned = counts[1][column];
    const auto belonging = counts[2][column];
    classes[label].threshold = thresholds_[label];
    classes[label].recall = part(found, belonging);
    classes[label].precision = part(found, assigned);
    classes[label].f1 = part(2 * found, assigned + belonging);
    if (belonging == 0) continue;
    sum_of_f1 += classes[label].f1;
    ++num_used;
  }
  reporting::Metrics replaced;
  const auto replace = [&](const reporting::MetricInfo& info, double value) {
    const auto metric = std::ranges::find(measured.metrics, info.name, [](const reporting::Metric& one) { return one.info.name; });
    if (metric == measured.metrics.end()) return;
    replaced.push_back(*metric);
    metric->value = value;
  };
  replace(label_metrics()[1], mean_of(sum_of_f1, num_used));
  replace(label_metrics()[2], part(matches_[0].item<int64_t>(), matches_[1].item<int64_t>()));
  return replaced;
}

}  // namespace trainer::task
