#include "distributed/supervision/heartbeats.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

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

TEST_F(HeartbeatLogTest, ALongStartUpOrEndIsNotStuck) {
  for (const auto phase : {Phase::kStartUp, Phase::kEnd}) {
    enter(phase, /*is_waiting=*/false);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(read().stuck.rank, -1);
    enter(phase, /*is_waiting=*/true);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(read().all_wait, 0s);
  }
}

TEST(Digest, DoesNotGrowWithTheNumberOfRanks) {
  const auto now = Clock::now();
  const auto size_of = [&](int num_ranks) {
    HeartbeatLog log(num_ranks, kSilenceLimit, now);
    return nlohmann::json(log.digest(std::vector<Heartbeat>(static_cast<size_t>(num_ranks)), now)).dump().size();
  };
  EXPECT_EQ(size_of(1000), size_of(2));
}

class DiagnoseTest : public ::testing::Test {
 protected:
  // The diagnosis as text, such as "rank 2 silent"; "nothing" without a failure.
  std::string diagnosis(Clock::duration since_start = 0s) const {
    const auto found = diagnose(knowledge_, limits_, start_ + since_start);
    if (!found) return "nothing";
    const std::map<Failure::Kind, std::string> names = {{Failure::Kind::kEnded, "ended"},
                                                        {Failure::Kind::kSilent, "silent"},
                                                        {Failure::Kind::kStuck, "stuck"},
                                                        {Failure::Kind::kAllWait, "all wait"}};
    return "rank " + std::to_string(found->rank) + " " + names.at(found->kind);
  }

  const Clock::time_point start_ = Clock::now();
  Knowledge knowledge_{.last_digest = start_, .last_answer = start_};
  DiagnosisLimits limits_{.rank = 1, .num_ranks = 3, .rank0_serves_store = true, .hang = 60s, .missed = 1s};
};

TEST_F(DiagnoseTest, ARankIsSilentAfterTheHangLimitAndHasEndedEarlierOnceAConnectionIsLost) {
  knowledge_.digest.silent = {2, 59s};
  EXPECT_EQ(diagnosis(), "nothing");
  knowledge_.digest.silent.duration = 61s;
  EXPECT_EQ(diagnosis(), "rank 2 silent");
  knowledge_.has_lost_connection = true;
  knowledge_.digest.silent.duration = 900ms;
  EXPECT_EQ(diagnosis(), "nothing");
  knowledge_.digest.silent.duration = 2s;
  EXPECT_EQ(diagnosis(), "rank 2 ended");
}

TEST_F(DiagnoseTest, ARankNeverCallsItselfSilentNorOneThatDoesNotExist) {
  knowledge_.digest.silent = {1, 1h};
  EXPECT_EQ(diagnosis(), "nothing");
  knowledge_.digest.silent = {7, 1h};
  knowledge_.digest.stuck = {-3, 1h};
  EXPECT_EQ(diagnosis(), "nothing");
}

TEST_F(DiagnoseTest, AnOldDigestBlamesNobody) {
  knowledge_.digest.silent = {2, 1h};
  EXPECT_EQ(diagnosis(2s), "nothing");
}

TEST_F(DiagnoseTest, Rank0IsSilentWhenItsStoreOrItsDigestsStop) {
  EXPECT_EQ(diagnosis(59s), "nothing");
  EXPECT_EQ(diagnosis(61s), "rank 0 silent");
  // A launcher serves the store, which still answers.
  limits_.rank0_serves_store = false;
  EXPECT_EQ(diagnosis(61s), "nothing");
  knowledge_.last_answer = start_ + 61s;
  EXPECT_EQ(diagnosis(61s), "rank 0 silent");
  knowledge_.last_answer = start_ + 2s;
  knowledge_.has_lost_connection = true;
  EXPECT_EQ(diagnosis(2s), "rank 0 ended");
}

TEST_F(DiagnoseTest, RanksWithoutProgress) {
  knowledge_.digest.stuck = {2, 60s};
  EXPECT_EQ(diagnosis(), "nothing");
  knowledge_.digest.stuck.duration = 61s;
  EXPECT_EQ(diagnosis(), "rank 2 stuck");
  knowledge_.digest.stuck = {};
  knowledge_.digest.all_wait = 61s;
  EXPECT_EQ(diagnosis(), "rank 1 all wait");
}

}  // namespace
}  // namespace trainer::supervision
