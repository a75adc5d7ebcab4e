#include "engine/reading_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/load.h"
#include "session/registries.h"
#include "tests/testing/ranks.h"

namespace trainer::engine {
namespace {

using ::testing::ThrowsMessage;
using Groups = std::vector<std::vector<int>>;

config::Experiment with_groups(const std::string& keys) {
  const auto text = "experiment: groups\nmodel: {name: demo_conv}\ndataset: {name: synthetic, " + keys + "}\ntraining: {epochs: 1}\n";
  return config::load_text(text, "x.yaml", {}, session::all_registries());
}

// Ranks on hosts of these names.
std::vector<distributed::RankInfo> on_hosts(const std::vector<std::string>& names) {
  std::vector<distributed::RankInfo> ranks;
  for (const auto& name : names) ranks.push_back({.host = name});
  return ranks;
}

TEST(ReadingGroups, AreThoseOfEachHost) {
  const auto experiment = with_groups("distribution: scatter");
  EXPECT_EQ(reading_groups(experiment, on_hosts({"a", "a", "b", "b"})), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(reading_groups(experiment, on_hosts({"a", "b", "a", "c", "a"})), (Groups{{0, 2, 4}, {1}, {3}}));
}

TEST(ReadingGroups, HaveTheSizeThatIsGiven) {
  const auto ranks = on_hosts({"a", "b", "a", "b", "a", "b"});
  EXPECT_EQ(reading_groups(with_groups("distribution: scatter, distribution_group_size: 2"), ranks), (Groups{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(reading_groups(with_groups("distribution: broadcast, distribution_group_size: 6"), ranks), (Groups{{0, 1, 2, 3, 4, 5}}));
}

TEST(ReadingGroups, OfASizeThatDoesNotDivideTheRanksAreRefused) {
  const auto experiment = with_groups("distribution: scatter, distribution_group_size: 2");
  EXPECT_THAT(
      [&] {
        reading_groups(experiment, on_hosts({"a", "a", "a"}));
      },
      ThrowsMessage<UsageError>("x.yaml:3:76: dataset.distribution_group_size: groups of 2 processes do not divide 3; choose a "
                                "divisor of the number of processes, or auto"));
  EXPECT_EQ(reading_groups(experiment, on_hosts({"a"})), (Groups{{0}})) << "one process reads for itself";
}

TEST(ReadingGroups, WithoutSharingASizeIsRefused) {
  EXPECT_THAT([] { with_groups("distribution_group_size: 2"); },
              ThrowsMessage<UsageError>("x.yaml:3:53: dataset.distribution_group_size: has no effect with dataset.distribution: local; set "
                                        "scatter or broadcast, or leave it out"));
}

TEST(ReadingGroups, ARankAloneReadsForItself) {
  trainer::testing::run_ranks(3, [](distributed::ProcessGroups& groups) {
    EXPECT_EQ(make_reading_group(with_groups("distribution: local"), groups), nullptr);
    const auto group = make_reading_group(with_groups("distribution: scatter, distribution_group_size: 3"), groups);
    EXPECT_EQ(group->ranks(), (std::vector{0, 1, 2}));
  });
  trainer::testing::run_ranks(
      1, [](distributed::ProcessGroups& groups) { EXPECT_EQ(make_reading_group(with_groups("distribution: scatter"), groups), nullptr); });
}

}  // namespace
}  // namespace trainer::engine
