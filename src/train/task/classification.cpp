#include "train/task/classification.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <stdexcept>

#include "base/text.h"
#include "train/task/task.h"
#include "trainer/error.h"
#include "trainer/task.h"

namespace trainer::task {
namespace {

using reporting::MetricFormat;

// Fraction of the samples whose largest output is that of their class. If several outputs are equal, the prediction is the first of their
// classes.
double top1(const torch::Tensor& confusion) {
  return mean_of(static_cast<double>(confusion.trace().item<int64_t>()), static_cast<double>(confusion.sum().item<int64_t>()));
}

// Mean of the F1 scores of all classes except those that neither occur nor are predicted.
double macro_f1(const torch::Tensor& confusion) {
  const auto hits = confusion.diagonal().to(torch::kFloat64);
  // 2 hits / (actual + predicted), the harmonic mean of precision and recall.
  const auto seen = (confusion.sum(0) + confusion.sum(1)).to(torch::kFloat64);
  const auto occurs = seen > 0;
  return mean_of((2 * hits / seen.clamp_min(1)).masked_select(occurs).sum().item<double>(), occurs.sum().item<double>());
}

// Mean recall over the classes that occur, as in sklearn.metrics.balanced_accuracy_score.
double balanced_accuracy(const torch::Tensor& confusion) {
  const auto num_samples = confusion.sum(1);
  const auto recall = confusion.diagonal().to(torch::kFloat64) / num_samples.clamp_min(1);
  const auto occurs = num_samples > 0;
  return mean_of(recall.masked_select(occurs).sum().item<double>(), occurs.sum().item<double>());
}

// The correlation between labels and predictions (Gorodkin, 2004); 0 if all labels or all predictions are equal.
double matthews_correlation(const torch::Tensor& confusion) {
  const auto counts = confusion.to(torch::kFloat64);
  const auto actual = counts.sum(1);
  const auto predicted = counts.sum(0);
  const auto all = counts.sum();
  const auto of = [&](const torch::Tensor& one, const torch::Tensor& other) { return (all * all - (one * other).sum()).item<double>(); };
  const double covariance = (counts.trace() * all - (actual * predicted).sum()).item<double>();
  const double product = of(actual, actual) * of(predicted, predicted);
  return product > 0 ? covariance / std::sqrt(product) : 0;
}

// The label of a sample mixed from several samples is that of its largest part.
torch::Tensor count_top1(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return outputs.argmax(1).eq(targets.is_floating_point() ? targets.argmax(1) : targets).sum();
}

torch::Tensor count_top5(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return std::get<1>(outputs.topk(5, 1)).eq(targets.unsqueeze(1)).sum();
}

reporting::MetricInfo top1_info() { return {.name = "top1", .higher_is_better = true, .format = MetricFormat::kPercent}; }

std::vector<ClassMetric>& modifiable_class_metrics() {
  static std::vector<ClassMetric> metrics = {
      {.info = top1_info(), .from_confusion = top1},
      {.info = {.name = "top5", .higher_is_better = true, .format = MetricFormat::kPercent}, .min_classes = 5, .count = count_top5},
      {.info = {.name = "macro_f1", .higher_is_better = true, .is_detail = true}, .from_confusion = macro_f1},
      {.info = {.name = "balanced_accuracy", .higher_is_better = true, .format = MetricFormat::kPercent, .is_detail = true},
       .from_confusion = balanced_accuracy},
      {.info = {.name = "mcc", .higher_is_better = true, .is_detail = true}, .from_confusion = matthews_correlation},
      // The only metric without a function: ClassMeter takes it from its CalibrationMeter.
      {.info = {.name = "calibration_error", .is_detail = true}},
  };
  return metrics;
}

// The probability of the most probable class of each sample, in float32 or float64; 0 if an output is NaN.
torch::Tensor confidence_of(const torch::Tensor& outputs) {
  const auto dtype = c10::promoteTypes(outputs.scalar_type(), torch::kFloat32);
  return outputs.to(dtype).softmax(1).amax(1).nan_to_num(/*nan=*/0);
}

class ClassMeter : public ValidationMeter {
 public:
  // `metrics`: those that exist for this number of classes.
  ClassMeter(torch::Device device, int64_t num_classes, int64_t num_batches, std::vector<ClassMetric> metrics)
      : ValidationMeter(device, num_batches),
        num_classes_(num_classes),
        metrics_(std::move(metrics)),
        calibration_(device),
        mistakes_(device) {
    const auto integers = torch::TensorOptions(device).dtype(torch::kInt64);
    hits_ = torch::zeros({std::ranges::count_if(metrics_, [](const ClassMetric& metric) { return metric.count != nullptr; })}, integers);
    confusion_ = torch::zeros({num_classes, num_classes}, integers);
  }

  void add(const EvaluatedBatch& batch, const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets) override {
    ValidationMeter::add(batch, loss, outputs, targets);
    const torch::NoGradGuard no_grad;
    const auto predicted = outputs.argmax(1);
    const auto cells = targets * num_classes_ + predicted;
    confusion_.view(-1).scatter_add_(0, cells, torch::ones_like(cells));
    const auto confidence = confidence_of(outputs);
    calibration_.add(confidence, predicted.eq(targets));
    if (!batch.samples.empty()) mistakes_.add(confidence, predicted, targets, batch.samples);
    int64_t column = 0;
    for (const auto& metric : metrics_) {
      if (metric.count) hits_[column++].add_(metric.count(outputs, targets));
    }
  }

  Measurement read(const distributed::ProcessGroup& group) override {
    auto measured = ValidationMeter::read(group);
    for (const auto& tensor : {hits_, confusion_}) {
      if (tensor.numel() > 0) group.all_reduce(tensor);
    }
    const auto hits = group.to_host(hits_);
    const auto confusion = group.to_host(confusion_);
    calibration_.reduce(group);
    const auto* next_hits = hits.const_data_ptr<int64_t>();
    const auto num_samples = static_cast<double>(measured.num_samples);
    for (const auto& metric : metrics_) {
      const auto value = metric.count            ? mean_of(static_cast<double>(*next_hits++), num_samples)
                         : metric.from_confusion ? metric.from_confusion(confusion)
                                                 : calibration_.expected_error();
      measured.metrics.push_back({metric.info, value});
    }
    const auto* cells = confusion.const_data_ptr<int64_t>();
    measured.classes = {
        .confusion = {cells, cells + confusion.numel()}, .calibration = calibration_.bins(), .mistakes = mistakes_.read(group)};
    return measured;
  }

 private:
  int64_t num_classes_;
  std::vector<ClassMetric> metrics_;
  torch::Tensor hits_;       // int64, one for each metric with `count`
  torch::Tensor confusion_;  // int64 [num_classes, num_classes]
  CalibrationMeter calibration_;
  MistakeList mistakes_;
};

class Classification : public Task {
 public:
  using Task::Task;

  std::vector<MeanMetric> train_metrics() const override { return {{top1_info(), count_top1}}; }

  std::vector<reporting::MetricInfo> validation_metrics() const override {
    std::vector<reporting::MetricInfo> infos;
    for (const auto& metric : class_metrics()) infos.push_back(metric.info);
    return infos;
  }

  std::string default_metric() const override { return top1_info().name; }

  std::unique_ptr<ValidationMeter> make_validation_meter(torch::Device device, int64_t num_classes, int64_t num_batches) const override {
    auto metrics = class_metrics();
    std::erase_if(metrics, [&](const ClassMetric& metric) { return metric.min_classes > num_classes; });
    return std::make_unique<ClassMeter>(device, num_classes, num_batches, std::move(metrics));
  }

  std::vector<Mismatch> mismatches(const Setup& setup) const override {
    std::vector<Mismatch> found;
    if (setup.has_masks) {
      found.push_back({"task.name", fmt::format("classification needs one class label per image, but {} has one per pixel; set task.name "
                                                "to a task for masks, which a plug-in must provide",
                                                setup.dataset)});
    }
    if (setup.is_multi_label) {
      // With bce, the default task is multi_label, so only a task section can have chosen this task.
      found.push_back(
          setup.loss == "bce"
              ? Mismatch{"task.name", fmt::format("classification needs exactly one class per image, but images of {} can have any number "
                                                  "of classes; remove the task section",
                                                  setup.dataset)}
              : Mismatch{
                    "loss.name",
                    fmt::format("{} needs exactly one class per image, but images of {} can have any number of classes; set loss.name: bce",
                                setup.loss, setup.dataset)});
    }
    if (setup.num_classes == 0) {
      found.push_back(
          {"loss.name", fmt::format("{} needs class labels, but {} has floating-point targets; choose a loss for numbers, such as mse",
                                    setup.loss, setup.dataset)});
    }
    for (const auto& metric : class_metrics()) {
      if (setup.monitor != "validation/" + metric.info.name || setup.num_classes >= metric.min_classes) continue;
      found.push_back({"checkpoint.monitor",
                       fmt::format("{} needs at least {}, but {} has {}; choose validation/{}", setup.monitor,
                                   counted(metric.min_classes, "class", "classes"), setup.dataset, setup.num_classes, default_metric())});
    }
    return found;
  }
};

}  // namespace

const std::vector<ClassMetric>& class_metrics() { return modifiable_class_metrics(); }

void add_class_metric(ClassMetric metric) {
  check_metric_name(metric.info.name);
  if ((metric.count != nullptr) == (metric.from_confusion != nullptr)) {
    throw std::logic_error("metric " + metric.info.name + ": set exactly one of count and from_confusion");
  }
  auto& metrics = modifiable_class_metrics();
  const auto has_name = [&](const ClassMetric& other) { return other.info.name == metric.info.name; };
  if (metric.info.name == loss_info().name || std::ranges::any_of(metrics, has_name)) {
    throw std::logic_error("metric " + metric.info.name + " is already registered");
  }
  metrics.push_back(std::move(metric));
}

std::unique_ptr<Task> make_classification(std::unique_ptr<nn::Loss> loss) {
  if (loss != nullptr && !loss->has_classes()) {
    throw UsageError("classification needs a loss for class labels, such as cross_entropy; choose one, or remove the task section");
  }
  return std::make_unique<Classification>(std::move(loss));
}

namespace {

// The unit of the summed confidences: precise enough for float32 confidences, and fewer than 2^31 samples can be added without overflow.
constexpr double kUnit = 0x1p-32;

reporting::CalibrationBin make_bin(int64_t count, int64_t hits, int64_t confidence) {
  const auto samples = static_cast<double>(count);
  return {.confidence = mean_of(static_cast<double>(confidence) * kUnit, samples),
          .accuracy = mean_of(static_cast<double>(hits), samples),
          .count = count};
}

}  // namespace

CalibrationMeter::CalibrationMeter(torch::Device device)
    : sums_(torch::zeros({3, kCalibrationBins + 1}, torch::TensorOptions(device).dtype(torch::kInt64))) {}

void CalibrationMeter::add(const torch::Tensor& confidence, const torch::Tensor& is_hit) {
  // The same limits as in torchmetrics, in the dtype of the confidences.
  const auto limits = at::linspace(0, 1, kCalibrationBins + 1, confidence.options());
  const auto bins = at::bucketize(confidence, limits, /*out_int32=*/false, /*right=*/true) - 1;
  sums_[0].scatter_add_(0, bins, at::ones_like(bins));
  sums_[1].scatter_add_(0, bins, is_hit.to(torch::kInt64));
  sums_[2].scatter_add_(0, bins, (confidence.to(torch::kFloat64) / kUnit).round().to(torch::kInt64));
}

void CalibrationMeter::reduce(const distributed::ProcessGroup& group) {
  group.all_reduce(sums_);
  sums_ = group.to_host(sums_);
}

double CalibrationMeter::expected_error() const {
  const auto sums = sums_.accessor<int64_t, 2>();
  double error = 0;
  int64_t num_samples = 0;
  for (int64_t i = 0; i <= kCalibrationBins; ++i) {
    const auto bin = make_bin(sums[0][i], sums[1][i], sums[2][i]);
    error += std::abs(bin.accuracy - bin.confidence) * static_cast<double>(bin.count);
    num_samples += bin.count;
  }
  return mean_of(error, static_cast<double>(num_samples));
}

std::vector<reporting::CalibrationBin> CalibrationMeter::bins() const {
  const auto sums = sums_.accessor<int64_t, 2>();
  std::vector<reporting::CalibrationBin> bins;
  for (int64_t i = 0; i < kCalibrationBins; ++i) {
    const auto sum_of = [&](int64_t row) { return sums[row][i] + (i + 1 == kCalibrationBins ? sums[row][i + 1] : 0); };
    bins.push_back(make_bin(sum_of(0), sum_of(1), sum_of(2)));
  }
  return bins;
}

namespace {

constexpr int64_t kIndexBits = 32;
constexpr int64_t kLargestIndex = (int64_t{1} << kIndexBits) - 1;

// The columns of `rows`, [3][any number], with the largest sort keys (row 0).
torch::Tensor first_ones(const torch::Tensor& rows) {
  const auto order = std::get<1>(rows[0].topk(std::min(kMostMistakes, rows.size(1))));
  return rows.index_select(1, order);
}

}  // namespace

MistakeList::MistakeList(torch::Device device)
    : kept_(torch::zeros({3, kMostMistakes}, torch::TensorOptions(device).dtype(torch::kInt64))) {}

void MistakeList::add(const torch::Tensor& confidence, const torch::Tensor& predicted, const torch::Tensor& labels,
                      torch::IntArrayRef samples) {
  // Non-negative floats have the same order as their bits, read as integers.
  const auto bits = confidence.to(torch::kFloat32).contiguous().view(torch::kInt32).to(torch::kInt64);
  const auto count = labels.size(0);
  const bool are_all = samples.back() - samples.front() == count - 1;
  // Only if samples were skipped, indices are copied to the device.
  const auto indices = are_all ? at::arange(samples.front(), samples.front() + count, labels.options())
                               : torch::tensor(samples, torch::kInt64).to(labels.device());
  const auto complements = kLargestIndex - indices;
  const auto keys = (bits * (kLargestIndex + 1) + complements) * predicted.ne(labels);
  kept_ = first_ones(at::cat({kept_, at::stack({keys, labels, predicted})}, 1));
}

std::vector<reporting::Mistake> MistakeList::read(const distributed::ProcessGroup& group) const {
  const auto of_ranks = group.to_host(group.all_gather(kept_.contiguous()));
  const auto first = first_ones(of_ranks.permute({1, 0, 2}).flatten(1));
  const auto rows = first.accessor<int64_t, 2>();
  std::vector<reporting::Mistake> mistakes;
  for (int64_t i = 0; i < first.size(1) && rows[0][i] != 0; ++i) {
    mistakes.push_back({.index = kLargestIndex - (rows[0][i] & kLargestIndex),
                        .label = rows[1][i],
                        .predicted = rows[2][i],
                        .confidence = std::bit_cast<float>(static_cast<int32_t>(rows[0][i] >> kIndexBits))});
  }
  return mistakes;
}

}  // namespace trainer::task
