#pragma once
// The learning-rate range test (Smith 2015, https://arxiv.org/abs/1506.01186), as the lr_find of PyTorch Lightning and of fastai runs it:
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
    double smoothed = 0;  // 0.98 of the average before, and the rest of this loss
  };

  explicit LrRangeTest(const LrRange& range) : range_(range) {}

  // min_lr at step 0, max_lr at the last step and after it.
  double lr_at(int64_t step) const;
  // The loss of the next step; one that is not finite means divergence. Has no effect once the test is done.
  void add(double loss);
  // Whether the smoothed loss has exceeded four times its least value, or a loss was not finite.
  bool has_diverged() const { return has_diverged_; }
  bool is_done() const { return has_diverged_ || static_cast<int64_t>(points_.size()) >= range_.num_steps; }
  const std::vector<Point>& points() const { return points_; }

  // What the curve says.
  struct Advice {
    double least = 0;            // the learning rate at which the smoothed loss is least
    std::optional<double> rise;  // the first one, behind half of the fall, from which on three losses are above where the fall began
    // For sgd and sam a third of `rise`; for others, whose steps do not grow with the gradient, a tenth of `least` (fastai's advice, for
    // Adam). Empty without a rise, or if the two differ by more than a factor of 10.
    std::optional<double> suggestion(bool is_sgd) const;
  };
  // The average of the first tenth of the points, at least 10, has seen few losses, and the last 5 may diverge: as fastai, the search for
  // the fall leaves them out. Empty before the test is done, and if the loss falls no further than its noise explains.
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
