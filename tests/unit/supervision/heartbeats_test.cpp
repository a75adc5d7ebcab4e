#include "supervision/heartbeats.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trainer::supervision {
namespace {

using namespace std::chrono_literals;
using distributed::ActivityState;
using distributed::Phase;

constexpr auto kSilenceLimit = 4s;

// A log of three ranks that is read once a second.
class HeartbeatLogTest : public ::testing::Test {
 protected:
  // All ranks except `silent` send a heartbeat.
  Digest read(int silent = -1) {
    now_ += 1s;
    for (size_t rank = 0; rank < heartbeats_.size(); ++rank) {
      if (static_cast<int>(rank) != silent) ++heartbeats_[rank].number;
    }
    return log_.digest(heartbeats_, now_);
  }
  void enter(Phase phase, bool is_waiting) {
    for (auto& heartbeat : heartbeats_) heartbeat.state = {.phase = phase, .is_waiting = is_waiting, .num_changes = 1};
  }

  Clock::time_point now_ = Clock::now();
  HeartbeatLog log_{3, kSilenceLimit, now_};
  std::vector<Heartbeat> heartbeats_{3};
};

TEST_F(HeartbeatLogTest, AtTheStartARankIsStuckOnlyInAFile) {
  enter(Phase::kStartUp, /*is_waiting=*/false);
  heartbeats_[1].state.file = "reading data.bin";
  read();
  read();
  const auto digest = read();
  EXPECT_EQ(digest.stuck.rank, 1);
  EXPECT_EQ(digest.stuck.duration, 2s);
}

TEST_F(HeartbeatLogTest, FindsTheLongestSilentRank) {
  read();
  read(/*silent=*/2);
  const auto digest = read(/*silent=*/2);
  EXPECT_EQ(digest.number, 3U);
  EXPECT_EQ(digest.silent.rank, 2);
  EXPECT_EQ(digest.silent.duration, 2s);
  EXPECT_EQ(read().silent.duration, 0s);
}

TEST_F(HeartbeatLogTest, FindsTheRankThatIsStuckForLongestAmongThoseThatDoNotWait) {
  enter(Phase::kStep, /*is_waiting=*/true);
  heartbeats_[1].state.is_waiting = false;
  read();
  read();
  auto digest = read();
  EXPECT_EQ(digest.stuck.rank, 1);
  EXPECT_EQ(digest.stuck.duration, 2s);
  EXPECT_EQ(digest.all_wait, 0s);
  ++heartbeats_[1].state.num_changes;
  EXPECT_EQ(read().stuck.duration, 0s);
  // A silent rank is not reported as stuck.
  for (int i = 0; i < 5; ++i) digest = read(/*silent=*/1);
  EXPECT_EQ(digest.stuck.rank, -1);
}

TEST_F(HeartbeatLogTest, MeasuresHowLongAllRanksWait) {
  enter(Phase::kStep, /*is_waiting=*/true);
  read();
  ++heartbeats_[2].state.num_changes;
  read();
  EXPECT_EQ(read().all_wait, 1s);
  heartbeats_[0].state.is_waiting = false;
  EXPECT_EQ(read().all_wait, 0s);
}

TEST_F(HeartbeatLogTest, RanksWhoseGpusDoNotConnectWaitForEachOther) {
  enter(Phase::kConnect, /*is_waiting=*/true);
  read();
  read();
  EXPECT_EQ(read().all_wait, 2s);
}

TEST_F(HeartbeatLogTest, ALongStartUpOrEndIsNotStuck) {
  for (const auto phase : {Phase::kStartUp, Phase::kEnd}) {
    enter(phase, /*is_waiting=*/false);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(read().stuck.rank, -1);
    enter(phase, /*is_waiting=*/true);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(read().all_wait, 0s);
  }
}

TEST(Digest, IsReadBackUnchanged) {
  const Digest digest{.number = 5,
                      .rank0 = {.phase = Phase::kLoading, .step = 12, .is_waiting = true, .num_changes = 7},
                      .silent = {3, 1500ms},
                      .stuck = {4, 20ms},
                      .all_wait = 6ms};
  const auto read = nlohmann::json::parse(nlohmann::json(digest).dump()).get<Digest>();
  EXPECT_EQ(read.number, 5U);
  EXPECT_EQ(describe(read.rank0), "loading of step 12");
  EXPECT_TRUE(read.rank0.is_waiting);
  EXPECT_EQ(read.rank0.num_changes, 7U);
  EXPECT_EQ(read.silent.rank, 3);
  EXPECT_EQ(read.silent.duration, 1500ms);
  EXPECT_EQ(read.stuck.rank, 4);
  EXPECT_EQ(read.stuck.duration, 20ms);
  EXPECT_EQ(read.all_wait, 6ms);
}

TEST(Digest, DoesNotGrowWithTheNumberOfRanks) {
  const auto now = Clock::now();
  const auto size_of = [&](int num_ranks) {
    HeartbeatLog log(num_ranks, kSilenceLimit, now);
    return nlohmann::json(log.digest(std::vector<Heartbeat>(static_cast<size_t>(num_ranks)), now)).dump().size();
  };
  EXPECT_EQ(size_of(1000), size_of(2));
}

}  // namespace
}  // namespace trainer::supervision
