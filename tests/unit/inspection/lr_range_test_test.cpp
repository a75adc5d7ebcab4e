#include "inspection/lr_range_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace trainer::inspection {
namespace {

TEST(LrRangeTest, GrowsTheLearningRateExponentially) {
  const LrRangeTest test({.min_lr = 1e-4, .max_lr = 1, .num_steps = 5});
  EXPECT_DOUBLE_EQ(test.lr_at(0), 1e-4);
  EXPECT_DOUBLE_EQ(test.lr_at(1), 1e-3);
  EXPECT_DOUBLE_EQ(test.lr_at(4), 1);
  EXPECT_DOUBLE_EQ(test.lr_at(9), 1);
}

// tests/golden/make_lr_range_test.py
TEST(LrRangeTest, SmoothsAndSuggestsAsLightningDoes) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/lr_range_test.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 3U);
  for (const auto& golden : cases) {
    const auto losses = golden["losses"].get<std::vector<double>>();
    LrRangeTest test({.min_lr = 1e-7, .max_lr = 10, .num_steps = static_cast<int64_t>(losses.size())});
    for (const double loss : losses) test.add(loss);
    const auto smoothed = golden["smoothed"].get<std::vector<double>>();
    ASSERT_EQ(test.points().size(), smoothed.size());
    for (size_t i = 0; i < smoothed.size(); ++i) EXPECT_NEAR(test.points()[i].smoothed, smoothed[i], 1e-12 * smoothed[i]) << i;
    EXPECT_EQ(test.has_diverged(), golden["diverged"].get<bool>());
    ASSERT_TRUE(test.steepest_lr());
    EXPECT_NEAR(*test.steepest_lr(), golden["steepest_lr"].get<double>(), 1e-12 * *test.steepest_lr());
    EXPECT_NEAR(*test.tenth_of_minimum_lr(), golden["tenth_of_minimum_lr"].get<double>(), 1e-12 * *test.tenth_of_minimum_lr());
  }
}

TEST(LrRangeTest, SuggestsNoFallAfterTheRise) {
  LrRangeTest test({.min_lr = 1e-4, .max_lr = 1, .num_steps = 50});
  for (int i = 0; i < 50; ++i) test.add(i < 20 ? 2 - 0.01 * i : i < 40 ? 2 + 0.1 * (i - 20) : 0.5);
  ASSERT_TRUE(test.steepest_lr());
  EXPECT_LE(*test.steepest_lr(), test.lr_at(20));
}

TEST(LrRangeTest, EndsAtALossThatIsNotFinite) {
  LrRangeTest test({.min_lr = 1e-4, .max_lr = 1, .num_steps = 50});
  for (int i = 0; i < 20; ++i) test.add(2 - 0.01 * i);
  EXPECT_FALSE(test.is_done());
  test.add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(test.has_diverged());
  EXPECT_TRUE(test.is_done());
  test.add(1);
  EXPECT_EQ(test.points().size(), 20U);
  EXPECT_TRUE(test.steepest_lr());
}

TEST(LrRangeTest, SuggestsNothingFromTooFewPointsOrARisingLoss) {
  LrRangeTest few({.min_lr = 1e-4, .max_lr = 1, .num_steps = 12});
  EXPECT_FALSE(few.tenth_of_minimum_lr());
  for (int i = 0; i < 12; ++i) few.add(2 - 0.01 * i);
  EXPECT_TRUE(few.is_done());
  EXPECT_FALSE(few.has_diverged());
  EXPECT_FALSE(few.steepest_lr());
  LrRangeTest rising({.min_lr = 1e-4, .max_lr = 1, .num_steps = 20});
  for (int i = 0; i < 20; ++i) rising.add(2 + 0.01 * i);
  EXPECT_FALSE(rising.steepest_lr());
  EXPECT_DOUBLE_EQ(*rising.tenth_of_minimum_lr(), 1e-5);
}

}  // namespace
}  // namespace trainer::inspection
