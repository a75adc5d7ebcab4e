#include "metrics/classification.h"

#include <gtest/gtest.h>

#include <limits>

namespace trainer::metrics {
namespace {

torch::Tensor labels(const std::vector<int64_t>& values) { return torch::tensor(values, torch::kInt64); }

// Outputs whose classes, from the best, are `first`, first + 1, … (modulo their number).
torch::Tensor ranked_outputs(const std::vector<int64_t>& first, int64_t num_classes) {
  auto outputs = torch::empty({static_cast<int64_t>(first.size()), num_classes});
  for (size_t i = 0; i < first.size(); ++i) {
    for (int64_t rank = 0; rank < num_classes; ++rank) {
      outputs[static_cast<int64_t>(i)][(first[i] + rank) % num_classes] = -static_cast<double>(rank);
    }
  }
  return outputs;
}

TEST(ScoreMeter, WeighsAShortLastBatchByItsSize) {
  ScoreMeter meter(torch::kCPU, /*has_classes=*/true, /*with_top5=*/true);
  // Of 10 classes; with the best class 0 the fifth is 4.
  meter.add(torch::tensor(1.0F), ranked_outputs({0, 0, 0, 0}, 10), labels({0, 4, 5, 9}), 4);
  meter.add(torch::tensor(4.0F), ranked_outputs({3}, 10), labels({3}), 1);
  const auto scores = meter.read();
  EXPECT_EQ(scores.num_samples, 5);
  EXPECT_DOUBLE_EQ(scores.loss, (4 * 1.0 + 4.0) / 5);
  EXPECT_DOUBLE_EQ(scores.top1.value(), 2.0 / 5);
  EXPECT_DOUBLE_EQ(scores.top5.value(), 3.0 / 5);
}

TEST(ScoreMeter, WithFiveClassesTop5IsAlwaysAHit) {
  ScoreMeter meter(torch::kCPU, true, true);
  meter.add(torch::tensor(0.5F), ranked_outputs({0, 1, 2}, 5), labels({0, 0, 1}), 3);
  const auto scores = meter.read();
  EXPECT_DOUBLE_EQ(scores.top1.value(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(scores.top5.value(), 1);
}

TEST(ScoreMeter, OfEqualOutputsTheFirstClassIsTop1) {
  ScoreMeter meter(torch::kCPU, true, false);
  const auto outputs = torch::tensor({{2.0F, 7.0F, 7.0F}, {2.0F, 7.0F, 7.0F}, {1.0F, 1.0F, 1.0F}});
  meter.add(torch::tensor(0.0F), outputs, labels({1, 2, 0}), 3);
  EXPECT_DOUBLE_EQ(meter.read().top1.value(), 2.0 / 3);
}

TEST(ScoreMeter, WithoutTop5) {
  ScoreMeter meter(torch::kCPU, true, false);
  meter.add(torch::tensor(0.5F), ranked_outputs({0, 1}, 3), labels({0, 1}), 2);
  const auto scores = meter.read();
  EXPECT_EQ(scores.top1, 1.0);
  EXPECT_FALSE(scores.top5.has_value());
}

TEST(ScoreMeter, LossWithoutClasses) {
  ScoreMeter meter(torch::kCPU, /*has_classes=*/false, /*with_top5=*/false);
  const auto outputs = torch::tensor({{1.0F}, {3.0F}});
  meter.add(torch::nn::functional::mse_loss(outputs, torch::zeros({2, 1})), outputs, torch::zeros({2, 1}), 2);
  const auto scores = meter.read();
  EXPECT_EQ(scores.loss, 5);
  EXPECT_FALSE(scores.top1.has_value());
  EXPECT_FALSE(scores.top5.has_value());
}

TEST(ScoreMeter, LossWithoutClassesIgnoresTop5) {
  ScoreMeter meter(torch::kCPU, /*has_classes=*/false, /*with_top5=*/true);
  meter.add(torch::tensor(1.0F), torch::ones({2, 1}), torch::ones({2, 1}), 2);
  EXPECT_FALSE(meter.read().top5.has_value());
}

TEST(ScoreMeter, SumsInFloat64) {
  ScoreMeter meter(torch::kCPU, false, false);
  // In float32 the second loss would be lost in the sum.
  meter.add(torch::tensor(16777216.0F), {}, {}, 1);
  meter.add(torch::tensor(1.0F), {}, {}, 1);
  EXPECT_EQ(meter.read().loss, 16777217.0 / 2);
}

TEST(ScoreMeter, AddsOutputsThatNeedGradients) {
  ScoreMeter meter(torch::kCPU, true, false);
  const auto outputs = ranked_outputs({1}, 3).requires_grad_();
  auto loss = torch::nn::functional::cross_entropy(outputs, labels({1}));
  meter.add(loss, outputs, labels({1}), 1);
  loss.backward();
  EXPECT_DOUBLE_EQ(meter.read().loss, loss.item<double>());
}

TEST(ScoreMeter, ABatchOfNothingAddsNothing) {
  ScoreMeter meter(torch::kCPU, true, true);
  meter.add(torch::tensor(std::numeric_limits<float>::quiet_NaN()), torch::empty({0, 10}), torch::empty({0}, torch::kInt64), 0);
  auto scores = meter.read();
  EXPECT_EQ(scores.num_samples, 0);
  EXPECT_EQ(scores.loss, 0);
  EXPECT_EQ(scores.top1, 0.0);
  meter.add(torch::tensor(2.0F), ranked_outputs({3}, 10), labels({3}), 1);
  scores = meter.read();
  EXPECT_EQ(scores.loss, 2);
  EXPECT_EQ(scores.top1, 1.0);
}

TEST(ScoreMeter, ResetForgets) {
  ScoreMeter meter(torch::kCPU, true, true);
  meter.add(torch::tensor(2.0F), ranked_outputs({3}, 10), labels({3}), 1);
  EXPECT_EQ(meter.read().num_samples, 1);
  meter.reset();
  meter.add(torch::tensor(1.0F), ranked_outputs({3, 3}, 10), labels({4, 9}), 2);
  const auto scores = meter.read();
  EXPECT_EQ(scores.num_samples, 2);
  EXPECT_EQ(scores.loss, 1);
  EXPECT_EQ(scores.top1, 0.0);
  EXPECT_DOUBLE_EQ(scores.top5.value(), 0.5);
}

}  // namespace
}  // namespace trainer::metrics
