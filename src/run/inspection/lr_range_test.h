#pragma once
// The learning-rate range test (Smith 2015, https://arxiv.org/abs/1506.01186), implemented like lr_find of PyTorch Lightning and fastai:
// the learning rate grows exponentially from step to step, and the loss is smoothed by a moving average with bias correction.

#include <cstdint>
#include <optional>
#include <vector>

namespace trainer::inspection {

struct LrRange {
  double min_lr = 1e-7;
  double max_lr = 10;
  int64_t num_steps = 100;  // 2 or more
};

class LrRangeTest {
 public:
  struct Point {
    double lr = 0;
    double loss = 0;      // of the step's batch, before the update
    double smoothed = 0;  // moving average of the losses with weight 0.02 for this loss, with bias correction
  };

  explicit LrRangeTest(const LrRange& range) : range_(range) {}

  // Returns min_lr at step 0, max_lr at the last step and after it.
  double lr_at(int64_t step) const;
  // Adds the loss of the next step; a loss that is not finite means divergence. Has no effect once the test is done.
  void add(double loss);
  // Whether the smoothed loss has exceeded four times its smallest value, or a loss was not finite.
  bool has_diverged() const { return has_diverged_; }
  bool is_done() const { return has_diverged_ || static_cast<int64_t>(points_.size()) >= range_.num_steps; }
  const std::vector<Point>& points() const { return points_; }

  // The learning rates that advice() finds in the curve.
  struct Advice {
    double least = 0;  // the learning rate with the smallest smoothed loss
    // The first learning rate after the middle of the fall to `least` at which the mean of this and the next two losses is above the
    // smoothed loss from which the fall began; if there is none, but the loss has diverged: the last learning rate.
    std::optional<double> rise;
    // For sgd and sam a third of `rise`; for other optimizers, whose steps do not grow with the gradient, a tenth of `least` (fastai's
    // advice for Adam). Empty without a rise, or if `least` and `rise` differ by more than a factor of 10.
    std::optional<double> suggestion(bool is_sgd) const;
  };
  // As in fastai, the search for the fall skips the first tenth of the points (at least 10), whose average is over few losses, and the last
  // 5, which may diverge. Not set before the test is done, with too few points, and if the fall of the loss can be explained by noise.
  std::optional<Advice> advice() const;

 private:
  double noise_of_average() const;

  LrRange range_;
  std::vector<Point> points_;
  double average_ = 0;
  double least_ = 0;
  bool has_diverged_ = false;
};

}  // namespace trainer::inspection
