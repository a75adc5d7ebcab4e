#include "distributed/supervision/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace trainer::supervision {
namespace {

using distributed::OwnSeconds;

constexpr double kRatio = 1.5;
constexpr double kInterval = 10;

std::optional<Straggler> find(const std::vector<OwnSeconds>& ranks, double seconds = kInterval) {
  return find_straggler(ranks, seconds, kRatio);
}

TEST(Straggler, IsNamedWithThePartThatIsSlower) {
  const auto by_data = find({{0.1, 4}, {0.3, 4}, {5.5, 4.1}, {0.2, 3.9}});
  ASSERT_TRUE(by_data.has_value());
  EXPECT_EQ(by_data->rank, 2);
  EXPECT_TRUE(by_data->is_by_data);
  EXPECT_DOUBLE_EQ(by_data->total.own, 9.6);
  EXPECT_DOUBLE_EQ(by_data->total.others, 4.1);
  EXPECT_DOUBLE_EQ(by_data->part.own, 5.5);
  EXPECT_DOUBLE_EQ(by_data->part.others, 0.2);

  // Rank 0 spends most of its time on data, but so do the other ranks.
  const auto by_compute = find({{5, 4.5}, {5, 1}, {5, 1}});
  ASSERT_TRUE(by_compute.has_value());
  EXPECT_EQ(by_compute->rank, 0);
  EXPECT_FALSE(by_compute->is_by_data);
  EXPECT_DOUBLE_EQ(by_compute->part.excess(), 3.5);
}

TEST(Straggler, TheMedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  const auto straggler = find({{0, 1}, {0, 9}, {0, 2}, {0, 4}, {0, 5}});
  ASSERT_TRUE(straggler.has_value());
  EXPECT_EQ(straggler->rank, 1);
  EXPECT_DOUBLE_EQ(straggler->total.others, 3);
}

TEST(Straggler, IsIgnoredUpToTheRatio) {
  EXPECT_FALSE(find({{0, 4}, {0, 6}, {0, 4}}).has_value());
  EXPECT_TRUE(find({{0, 4}, {0, 6.1}, {0, 4}}).has_value());
}

TEST(Straggler, IsIgnoredWhenTheOthersHardlyWait) {
  // The work of rank 1 takes three times as long, but the exchange takes nearly all of the interval.
  EXPECT_FALSE(find({{0, 0.4}, {0, 1.2}, {0, 0.4}}).has_value());
  EXPECT_TRUE(find({{0, 0.4}, {0, 1.2}, {0, 0.4}}, /*seconds=*/7).has_value());
}

TEST(Straggler, EqualRanksHaveNone) {
  EXPECT_FALSE(find({{5, 5}, {5, 5}, {5, 5}}).has_value());
  EXPECT_FALSE(find({{0, 0}, {0, 0}}, /*seconds=*/0).has_value());
}

TEST(Straggler, DescriptionHasSecondsPerStepAndARemedy) {
  const auto by_data = find({{0.1, 2}, {0.1, 2}, {2.5, 2}});
  EXPECT_EQ(
      to_string(by_data.value(), "process 31 on host-b, cuda:1", 10),
      "rank 2 (process 31 on host-b, cuda:1) is slow: its own work takes 0.45 s per step, while the median of the other ranks is "
      "0.21 s, so they wait 0.24 s for it; the largest difference is in its data time (0.25 s, other ranks 0.01 s); check the disk and "
      "memory of that host, or raise dataloader.num_workers");
  const auto by_compute = find({{0, 6}, {0, 2}});
  EXPECT_THAT(to_string(by_compute.value(), "process 7 on host-a, cpu", 4),
              ::testing::MatchesRegex(
                  "rank 0 \\(process 7 on host-a, cpu\\) .* the largest difference is in its compute time \\(1.5 s, other ranks 0.5 s\\); "
                  "check whether its host runs other programs, .*"));
}

}  // namespace
}  // namespace trainer::supervision
