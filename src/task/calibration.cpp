#include "task/calibration.h"

#include <cmath>

#include "trainer/task.h"

namespace trainer::task {
namespace {

// Fine enough for float32, and 2^31 samples can be added.
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
  // The limits of torchmetrics, in the dtype of the confidences.
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

}  // namespace trainer::task
