#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/ranks.h"
#include "train/engine/parts.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

using ::testing::ThrowsMessage;
using Groups = std::vector<std::vector<int>>;

// Ranks on hosts of these names.
std::vector<distributed::RankInfo> on_hosts(const std::vector<std::string>& names) {
  std::vector<distributed::RankInfo> ranks;
  for (const auto& name : names) ranks.push_back({.host = name});
  return ranks;
}

TEST(ReadingGroups, AreThoseOfEachHost) {
  EXPECT_EQ(reading_groups({}, on_hosts({"a", "a", "b", "b"})), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(reading_groups({}, on_hosts({"a", "b", "a", "c", "a"})), (Groups{{0, 2, 4}, {1}, {3}}));
}

TEST(ReadingGroups, HaveTheSizeThatIsGiven) {
  const auto ranks = on_hosts({"a", "b", "a", "b", "a", "b"});
  EXPECT_EQ(reading_groups(2, ranks), (Groups{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(reading_groups(6, ranks), (Groups{{0, 1, 2, 3, 4, 5}}));
}

TEST(ReadingGroups, OfASizeThatDoesNotDivideTheRanksAreRefused) {
  EXPECT_THAT(
      [&] {
        reading_groups(2, on_hosts({"a", "a", "a"}));
      },
      ThrowsMessage<OptionError>("group_size: 3 processes cannot be divided into groups of 2; choose a "
                                 "divisor of the number of processes, or auto"));
  EXPECT_EQ(reading_groups(2, on_hosts({"a"})), (Groups{{0}})) << "one process reads for itself";
}

TEST(ReadingGroups, ARankAloneReadsForItself) {
  trainer::testing::run_ranks(3, [](distributed::ProcessGroups& groups) {
    EXPECT_EQ(make_ranks(groups).reading, nullptr);
    const auto ranks = make_ranks(groups, {.distribution = Distribution::kScatter, .group_size = 3});
    EXPECT_EQ(ranks.reading->ranks(), (std::vector{0, 1, 2}));
  });
  trainer::testing::run_ranks(1, [](distributed::ProcessGroups& groups) {
    EXPECT_EQ(make_ranks(groups, {.distribution = Distribution::kScatter}).reading, nullptr);
  });
}

}  // namespace
}  // namespace trainer::engine
