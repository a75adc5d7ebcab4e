#include "run/evaluation/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "train/task/classification.h"
#include "trainer/error.h"
#include "trainer/random.h"

namespace trainer::evaluation {
namespace {

// The derivatives of the mean cross-entropy of softmax(factor * logits) with respect to the factor.
struct Derivatives {
  double first = 0;
  double second = 0;
};

Derivatives derivatives_at(double factor, const LabelledOutputs& samples) {
  const auto probabilities = (samples.logits * factor).softmax(1);
  const auto mean = (probabilities * samples.logits).sum(1);
  const auto mean_of_squares = (probabilities * samples.logits.square()).sum(1);
  const auto of_label = samples.logits.gather(1, samples.labels.unsqueeze(1)).squeeze(1);
  return {(mean - of_label).mean().item<double>(), (mean_of_squares - mean.square()).mean().item<double>()};
}

constexpr int kResamples = 1000;
constexpr double kOutside = 0.025;  // fraction on each side of the interval

// A statistic of the samples and its 95 % bootstrap interval. `statistic` returns the value for the samples at `indices`.
Measured bootstrap(int64_t num_samples, const std::function<double(const std::vector<uint32_t>& indices)>& statistic) {
  std::vector<uint32_t> indices(static_cast<size_t>(num_samples));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<uint32_t>(i);
  const double value = statistic(indices);
  std::vector<double> resampled;
  for (uint64_t sample = 0; sample < kResamples; ++sample) {
    uint64_t state = mix_seed(sample, 0);
    for (auto& index : indices) index = static_cast<uint32_t>(((next_splitmix64(state) >> 32) * static_cast<uint64_t>(num_samples)) >> 32);
    resampled.push_back(statistic(indices));
  }
  std::ranges::sort(resampled);
  const auto at = [&](double part) { return resampled[static_cast<size_t>(part * static_cast<double>(resampled.size() - 1) + 0.5)]; };
  return {value, at(kOutside), at(1 - kOutside)};
}

}  // namespace

std::optional<Outputs> compute_outputs(rank::RankContext& context, const network::NetworkFile& file, EvaluationRequest request) {
  std::vector<torch::Tensor> logits, labels;
  request.observe = [&](const torch::Tensor& outputs, const torch::Tensor& targets) {
    if (outputs.dim() != 2 || targets.scalar_type() != torch::kLong || outputs.size(1) < 2) {
      throw UsageError(
          fmt::format("{}: the network does not classify into two or more classes; there is nothing to calibrate", file.path()));
    }
    logits.push_back(outputs.to(torch::kFloat64).cpu());
    labels.push_back(targets.to(torch::kCPU, torch::kLong, /*non_blocking=*/false, /*copy=*/true));
  };
  const auto result = evaluate(context, file, request);
  if (!result) return std::nullopt;
  if (result->measured.num_samples == 0) throw DataError(fmt::format("{} has no images; use data that has some", result->name));
  Outputs outputs{{torch::cat(logits), torch::cat(labels)}, result->output_names, result->name};
  if (outputs.samples.labels.size(0) != result->measured.num_samples) {
    throw UsageError(fmt::format("{}: the task has {} outputs for {} images, so the network cannot be calibrated", file.path(),
                                 outputs.samples.labels.size(0), result->measured.num_samples));
  }
  const auto num_bad = outputs.samples.logits.isfinite().all(1).logical_not().sum().item<int64_t>();
  if (num_bad > 0) {
    throw UsageError(fmt::format(
        "{}: the network's outputs for {} of {} images are not finite, so it cannot be calibrated; choose an earlier checkpoint",
        file.path(), num_bad, result->measured.num_samples));
  }
  return outputs;
}

double fit_temperature(const LabelledOutputs& samples) {
  // The cross-entropy is a convex function of the factor, the reciprocal of the temperature.
  constexpr double kLeast = 1e-3;
  constexpr double kMost = 1e3;
  if (derivatives_at(kLeast, samples).first >= 0) {
    throw UsageError(
        "the network is no better than chance on these images, so no temperature can be fitted; check the images and their labels");
  }
  if (derivatives_at(kMost, samples).first <= 0) {
    throw UsageError("the network is right on all of these images, so no temperature can be fitted; use images that it was not trained on");
  }
  double low = kLeast;
  double high = kMost;
  double factor = 1;
  constexpr int kMostSteps = 200;
  for (int step = 0; step < kMostSteps; ++step) {
    const auto [first, second] = derivatives_at(factor, samples);
    (first < 0 ? low : high) = factor;
    // Newton's step, or bisection if the step leaves the interval.
    const double newton = factor - first / second;
    const double next = newton > low && newton < high ? newton : std::sqrt(low * high);
    const bool is_done = std::abs(next - factor) <= 1e-14 * factor;
    factor = next;
    if (is_done) break;
  }
  return 1 / factor;
}

inference::OperatingPoint::Threshold fit_threshold(const torch::Tensor& probabilities, const torch::Tensor& labels, int64_t label,
                                                   double miss_at_most) {
  const auto of_label = probabilities.select(1, label);
  const auto of_class = std::get<0>(of_label.masked_select(labels == label).sort());
  const auto count = of_class.size(0);
  if (count == 0) throw UsageError("--class: there are no images of this class; use data that contains some");
  // The small term protects against rounding errors of the product.
  const auto num_missed = static_cast<int64_t>(std::floor(miss_at_most * static_cast<double>(count) + 1e-9));
  const auto least = of_class[std::min(num_missed, count - 1)];
  // Half-way to the next smaller probability of any sample, because rounding errors depend on the batch size.
  const auto below = of_label.masked_select(of_label < least);
  const double next = below.numel() == 0 ? 0 : below.max().item<double>();
  return {label, (least.item<double>() + next) / 2};
}

CalibrationResult measure_calibration(const torch::Tensor& probabilities, const torch::Tensor& labels) {
  const auto [confidences, predicted] = probabilities.max(1);
  const auto of_label = probabilities.gather(1, labels.unsqueeze(1)).squeeze(1);
  const auto is_right = predicted.eq(labels);
  task::CalibrationMeter meter(torch::kCPU);
  meter.add(confidences, is_right);
  // The bin of each sample, as in the meter.
  const auto limits = torch::linspace(0, 1, task::kCalibrationBins + 1, torch::kFloat64);
  const auto bins = (torch::bucketize(confidences, limits, /*out_int32=*/false, /*right=*/true) - 1).contiguous();
  const auto differences = (is_right.to(torch::kFloat64) - confidences).contiguous();
  const auto* bin = bins.const_data_ptr<int64_t>();
  const auto* difference = differences.const_data_ptr<double>();
  const auto error = bootstrap(labels.size(0), [&](const std::vector<uint32_t>& indices) {
    std::array<double, task::kCalibrationBins + 1> sums{};
    for (const auto index : indices) sums[static_cast<size_t>(bin[index])] += difference[index];
    double sum = 0;
    for (const double of_bin : sums) sum += std::abs(of_bin);
    return sum / static_cast<double>(indices.size());
  });
  return {.loss = -of_label.log().mean().item<double>(), .calibration_error = error, .bins = meter.bins()};
}

PrecisionRecall measure_precision_recall(const torch::Tensor& probabilities, const torch::Tensor& labels, int64_t label) {
  constexpr int64_t kMostPoints = 50;
  const auto [sorted, order] = probabilities.select(1, label).sort(/*dim=*/0, /*descending=*/true);
  const auto is_of_class = labels.eq(label).index_select(0, order).contiguous();
  const auto scores = sorted.contiguous();
  const auto* score = scores.const_data_ptr<double>();
  const auto* hit = is_of_class.const_data_ptr<bool>();
  PrecisionRecall result;
  result.num_samples = is_of_class.sum().item<int64_t>();
  const auto num_samples = static_cast<double>(result.num_samples);
  int64_t hits = 0;
  int64_t hits_before = 0;  // at the next greater threshold
  int64_t next_point = 1;
  for (int64_t i = 0; i < scores.size(0); ++i) {
    hits += hit[i] ? 1 : 0;
    // Equally probable samples share one threshold.
    if ((i + 1 < scores.size(0) && score[i + 1] == score[i]) || hits == hits_before) continue;
    const auto precision = static_cast<double>(hits) / static_cast<double>(i + 1);
    result.average_precision += static_cast<double>(hits - hits_before) / num_samples * precision;
    hits_before = hits;
    if (hits * kMostPoints < next_point * result.num_samples) continue;
    result.points.push_back({score[i], static_cast<double>(hits) / num_samples, precision});
    next_point = hits * kMostPoints / result.num_samples + 1;
  }
  return result;
}

}  // namespace trainer::evaluation
