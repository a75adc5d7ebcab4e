#include "inspection/lr_range_test.h"

#include <algorithm>
#include <cmath>

namespace trainer::inspection {
namespace {

constexpr double kSmoothing = 0.98;
constexpr double kMostGrowth = 4;
// Left out of the search for the steepest fall: the average has seen few losses, or the loss has begun to rise.
constexpr size_t kSkipFirst = 10;
constexpr size_t kSkipLast = 1;

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

std::optional<double> LrRangeTest::steepest_lr() const {
  if (points_.size() < kSkipFirst + kSkipLast + 2) return std::nullopt;
  const size_t first = kSkipFirst;
  const size_t last = points_.size() - kSkipLast - 1;
  size_t steepest = first;
  double least_slope = 0;
  const auto least = static_cast<size_t>(std::ranges::min_element(points_, {}, &Point::smoothed) - points_.begin());
  for (size_t i = first; i <= std::min(last, least); ++i) {
    // As torch.gradient: the difference of both neighbours, at the ends of one.
    const size_t before = i == first ? i : i - 1;
    const size_t after = i == last ? i : i + 1;
    const double slope = (points_[after].smoothed - points_[before].smoothed) / static_cast<double>(after - before);
    if (slope >= least_slope) continue;
    least_slope = slope;
    steepest = i;
  }
  return least_slope < 0 ? std::optional(points_[steepest].lr) : std::nullopt;
}

std::optional<double> LrRangeTest::tenth_of_minimum_lr() const {
  const auto least = std::ranges::min_element(points_, {}, &Point::smoothed);
  return least == points_.end() ? std::nullopt : std::optional(least->lr / 10);
}

}  // namespace trainer::inspection
