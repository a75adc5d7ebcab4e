#include "run/inspection/lr_range_test.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

namespace trainer::inspection {
namespace {

constexpr double kSmoothing = 0.98;
constexpr double kMostGrowth = 4;
// Points that are skipped at the beginning, where the average is over few losses, and at the end, where the loss may diverge.
constexpr size_t kSkipFirst = 10;
constexpr size_t kSkipLast = 5;
// A fall of at most this many standard deviations is attributed to noise: in 99 of 100 curves, the average of pure noise falls by less.
constexpr double kMostNoise = 9;
// No learning rate is suggested if Advice::least and Advice::rise differ by more than this factor.
constexpr double kFar = 10;

}  // namespace

double LrRangeTest::lr_at(int64_t step) const {
  const auto part = static_cast<double>(std::min(step, range_.num_steps - 1)) / static_cast<double>(range_.num_steps - 1);
  return range_.min_lr * std::pow(range_.max_lr / range_.min_lr, part);
}

void LrRangeTest::add(double loss) {
  if (is_done()) return;
  if (!std::isfinite(loss)) {
    has_diverged_ = true;
    return;
  }
  const auto step = static_cast<int64_t>(points_.size());
  average_ = kSmoothing * average_ + (1 - kSmoothing) * loss;
  const double smoothed = average_ / (1 - std::pow(kSmoothing, static_cast<double>(step + 1)));
  points_.push_back({.lr = lr_at(step), .loss = loss, .smoothed = smoothed});
  least_ = step == 0 ? smoothed : std::min(least_, smoothed);
  has_diverged_ = smoothed > kMostGrowth * least_;
}

std::optional<LrRangeTest::Advice> LrRangeTest::advice() const {
  const size_t first = std::max(kSkipFirst, points_.size() / 10);
  if (!is_done() || points_.size() < first + kSkipLast + 2) return std::nullopt;
  const std::span<const Point> points(points_.begin() + static_cast<std::ptrdiff_t>(first), points_.end() - kSkipLast);
  const auto least = std::ranges::min_element(points, {}, &Point::smoothed) - points.begin();
  const std::span<const Point> before = points.first(static_cast<size_t>(least) + 1);
  const double top = std::ranges::max(before, {}, &Point::smoothed).smoothed;
  const double fall = top - before.back().smoothed;
  if (fall <= kMostNoise * noise_of_average()) return std::nullopt;
  Advice advice{.least = before.back().lr, .rise = std::nullopt};
  const auto flat = std::find_if(before.rbegin(), before.rend(), [&](const Point& point) { return point.smoothed >= top - fall / 2; });
  for (auto i = first + static_cast<size_t>(before.rend() - flat); i < points_.size() && !advice.rise; ++i) {
    const auto next = std::span(points_).subspan(i, std::min<size_t>(3, points_.size() - i));
    const double sum = std::transform_reduce(next.begin(), next.end(), 0.0, std::plus(), [](const Point& point) { return point.loss; });
    if (sum > top * static_cast<double>(next.size())) advice.rise = points_[i].lr;
  }
  if (!advice.rise && has_diverged_) advice.rise = points_.back().lr;
  return advice;
}

std::optional<double> LrRangeTest::Advice::suggestion(bool is_sgd) const {
  if (!rise || std::max(least, *rise) > kFar * std::min(least, *rise)) return std::nullopt;
  return is_sgd ? *rise / 3 : least / 10;
}

// The standard deviation of the moving average due to noise, estimated from the differences of consecutive losses.
double LrRangeTest::noise_of_average() const {
  std::vector<double> differences;
  for (size_t i = 1; i < points_.size(); ++i) differences.push_back(std::abs(points_[i].loss - points_[i - 1].loss));
  std::ranges::sort(differences);
  // The median, because it ignores the jumps of diverging losses; for a normal distribution it is 0.95 times the deviation of one loss.
  const double deviation = differences[differences.size() / 2] / 0.95;
  return deviation * std::sqrt((1 - kSmoothing) / (1 + kSmoothing));
}

}  // namespace trainer::inspection
