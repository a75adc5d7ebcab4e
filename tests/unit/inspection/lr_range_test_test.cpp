#include "run/inspection/lr_range_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace trainer::inspection {
namespace {

TEST(LrRangeTest, GrowsTheLearningRateExponentially) {
  const LrRangeTest test({.min_lr = 1e-4, .max_lr = 1, .num_steps = 5});
  EXPECT_DOUBLE_EQ(test.lr_at(0), 1e-4);
  EXPECT_DOUBLE_EQ(test.lr_at(1), 1e-3);
  EXPECT_DOUBLE_EQ(test.lr_at(4), 1);
  EXPECT_DOUBLE_EQ(test.lr_at(9), 1);
}

LrRangeTest test_of(const std::vector<double>& losses) {
  LrRangeTest test({.min_lr = 1e-7, .max_lr = 10, .num_steps = static_cast<int64_t>(losses.size())});
  for (const double loss : losses) test.add(loss);
  return test;
}

// The expected values are from tests/golden/make_lr_range_test.py.
TEST(LrRangeTest, SmoothsAndEndsAsLightningAndFastaiDo) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/lr_range_test.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 3U);
  for (const auto& golden : cases) {
    const auto test = test_of(golden["losses"].get<std::vector<double>>());
    const auto smoothed = golden["smoothed"].get<std::vector<double>>();
    ASSERT_EQ(test.points().size(), smoothed.size());
    for (size_t i = 0; i < smoothed.size(); ++i) EXPECT_NEAR(test.points()[i].smoothed, smoothed[i], 1e-12 * smoothed[i]) << i;
    EXPECT_EQ(test.has_diverged(), golden["diverged"].get<bool>());
  }
}

// Losses of lr-find, and the accuracy of the same experiment with the suggestion and with the best learning rate of a grid
// (bench/lr_find.py).
TEST(LrRangeTest, SuggestsOfRecordedCurvesWhatTrainsWell) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/lr_range_curves.json");
  const auto curves = nlohmann::json::parse(file);
  ASSERT_EQ(curves.size(), 3U);
  for (const auto& curve : curves) {
    const auto advice = test_of(curve["losses"].get<std::vector<double>>()).advice();
    ASSERT_TRUE(advice) << curve["experiment"];
    const auto suggestion = advice->suggestion(/*is_sgd=*/true);
    ASSERT_TRUE(suggestion) << curve["experiment"];
    const double trained = curve["suggestion"].get<double>();
    EXPECT_NEAR(*suggestion, trained, 0.05 * trained) << curve["experiment"];
    // The recorded accuracy belongs to the recorded suggestion; the line above checks that this code still suggests it.
    EXPECT_GE(curve["accuracy"].get<double>(), curve["best_of_grid"].get<double>() - 0.03) << curve["experiment"];
  }
}

// A noisy curve that falls from step `fall_from` to `fall_to` and rises from step `rise_from` on.
std::vector<double> curve_of(int fall_from, int fall_to, int rise_from) {
  std::vector<double> losses;
  for (int i = 0; i < 100; ++i) {
    const double fallen = std::clamp((i - fall_from) / static_cast<double>(fall_to - fall_from), 0.0, 1.0);
    losses.push_back(2.3 - 0.8 * fallen + 0.5 * std::max(0, i - rise_from) + (i % 3 - 1) * 0.02);
  }
  return losses;
}

TEST(LrRangeTest, SkipsTheFlatStart) {
  const auto test = test_of(curve_of(45, 75, 80));
  const auto advice = test.advice();
  ASSERT_TRUE(advice);
  EXPECT_GE(advice->least, test.lr_at(75));
  EXPECT_LE(advice->least, test.lr_at(82));
  ASSERT_TRUE(advice->rise);
  EXPECT_GE(*advice->rise, test.lr_at(79));
  EXPECT_LE(*advice->rise, test.lr_at(83));
  EXPECT_EQ(advice->suggestion(/*is_sgd=*/true), *advice->rise / 3);
  EXPECT_EQ(advice->suggestion(/*is_sgd=*/false), advice->least / 10);
}

TEST(LrRangeTest, SuggestsNothingWhereTheCurveContradictsItselfOrDoesNotRise) {
  // The loss rises a little, and only much later exceeds the value at which the fall began.
  auto losses = curve_of(20, 40, 80);
  for (size_t i = 45; i < 80; ++i) losses[i] += 0.6;
  const auto advice = test_of(losses).advice();
  ASSERT_TRUE(advice && advice->rise);
  EXPECT_GT(*advice->rise, 10 * advice->least);
  EXPECT_FALSE(advice->suggestion(/*is_sgd=*/true));
  EXPECT_FALSE(advice->suggestion(/*is_sgd=*/false));
  const auto falling = test_of(curve_of(45, 75, 200)).advice();
  ASSERT_TRUE(falling);
  EXPECT_FALSE(falling->rise);
  EXPECT_FALSE(falling->suggestion(/*is_sgd=*/true));
}

TEST(LrRangeTest, TheNoiseOfALossThatDoesNotFallIsNoFall) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(2.3, 0.1);
  int num_falls = 0;
  for (int repeat = 0; repeat < 100; ++repeat) {
    std::vector<double> losses(100);
    for (auto& loss : losses) loss = noise(random);
    num_falls += test_of(losses).advice() ? 1 : 0;
  }
  EXPECT_LE(num_falls, 5);
}

TEST(LrRangeTest, AFallAfterTheRiseMeansNothing) {
  LrRangeTest test({.min_lr = 1e-4, .max_lr = 1, .num_steps = 50});
  for (int i = 0; i < 50; ++i) test.add(i < 20 ? 2 - 0.01 * i : i < 40 ? 2 + 0.1 * (i - 20) : 3);
  ASSERT_TRUE(test.advice());
  EXPECT_LE(test.advice()->least, test.lr_at(21));
  EXPECT_LE(test.advice()->rise, test.lr_at(23));
}

TEST(LrRangeTest, EndsAtALossThatIsNotFinite) {
  LrRangeTest test({.min_lr = 1e-4, .max_lr = 1, .num_steps = 50});
  for (int i = 0; i < 20; ++i) test.add(2 - 0.01 * i);
  EXPECT_FALSE(test.is_done());
  EXPECT_FALSE(test.advice());
  test.add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(test.has_diverged());
  EXPECT_TRUE(test.is_done());
  test.add(1);
  EXPECT_EQ(test.points().size(), 20U);
  EXPECT_TRUE(test.advice());
}

TEST(LrRangeTest, SuggestsNothingFromTooFewPointsOrARisingLoss) {
  std::vector<double> few, rising;
  for (int i = 0; i < 16; ++i) few.push_back(2 - 0.01 * i);
  for (int i = 0; i < 40; ++i) rising.push_back(2 + 0.01 * i);
  EXPECT_TRUE(test_of(few).is_done());
  EXPECT_FALSE(test_of(few).advice());
  EXPECT_FALSE(test_of(rising).advice());
}

}  // namespace
}  // namespace trainer::inspection
