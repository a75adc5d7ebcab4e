#include "distributed/supervision/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace trainer::supervision {
namespace {

using distributed::OwnSeconds;
using ::testing::HasSubstr;

// In ten steps, with a ratio of 1.5; "nothing" without a straggler.
std::string found(const std::vector<OwnSeconds>& own, double seconds = 10) {
  const std::vector<distributed::RankInfo> ranks(own.size(), {.host = "host-b", .process_id = 31, .device = "cuda:1"});
  return describe_straggler(own, ranks, seconds, 1.5, 10).value_or("nothing");
}

TEST(Straggler, IsNamedWithThePartThatIsSlowerAndARemedy) {
  EXPECT_EQ(
      found({{0.1, 4}, {0.3, 4}, {5.5, 4.1}, {0.2, 3.9}}),
      "rank 2 (process 31 on host-b, cuda:1) is slow: its own work takes 0.96 s per step, while the median of the other ranks is "
      "0.41 s, so they wait 0.55 s for it; the largest difference is in its data time (0.55 s, other ranks 0.02 s); check the disk and "
      "memory of that host, or raise dataloader.num_workers");
  // Rank 0 spends most of its time on data, but so do the other ranks.
  const auto by_compute = found({{5, 4.5}, {5, 1}, {5, 1}});
  EXPECT_THAT(by_compute, HasSubstr("rank 0 (process"));
  EXPECT_THAT(by_compute, HasSubstr("in its compute time (0.45 s, other ranks 0.1 s); check whether its host runs other programs, "));
}

TEST(Straggler, TheMedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_THAT(found({{0, 1}, {0, 9}, {0, 2}, {0, 4}, {0, 5}}), HasSubstr("while the median of the other ranks is 0.3 s"));
}

TEST(Straggler, IsIgnoredUpToTheRatio) {
  EXPECT_EQ(found({{0, 4}, {0, 6}, {0, 4}}), "nothing");
  EXPECT_NE(found({{0, 4}, {0, 6.1}, {0, 4}}), "nothing");
}

TEST(Straggler, IsIgnoredWhenTheOthersHardlyWait) {
  // The work of rank 1 takes three times as long, but the exchange takes nearly all of the interval.
  EXPECT_EQ(found({{0, 0.4}, {0, 1.2}, {0, 0.4}}), "nothing");
  EXPECT_NE(found({{0, 0.4}, {0, 1.2}, {0, 0.4}}, /*seconds=*/7), "nothing");
}

TEST(Straggler, EqualRanksHaveNone) {
  EXPECT_EQ(found({{5, 5}, {5, 5}, {5, 5}}), "nothing");
  EXPECT_EQ(found({{0, 0}, {0, 0}}, /*seconds=*/0), "nothing");
}

}  // namespace
}  // namespace trainer::supervision
