#include "distributed/health.h"

#include <gtest/gtest.h>

#include <atomic>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace trainer::distributed::test {
namespace {

using namespace std::chrono_literals;

// The health of some ranks of one run, over a store in memory; each may leave at any time.
class HealthTest : public ::testing::Test {
 protected:
  struct Rank {
    std::shared_ptr<Activity> activity = std::make_shared<Activity>();
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Failure> heard;
    std::unique_ptr<Health> health;

    // What its threads find out.
    std::string wait() {
      std::unique_lock lock(mutex);
      changed.wait_for(lock, 20s, [this] { return heard.has_value(); });
      return heard ? to_string(*heard) : "nothing";
    }
  };

  void start(int world_size, std::chrono::milliseconds hang_limit) {
    HealthOptions options{.first_serves_store = false, .hang_limit = hang_limit};
    for (int rank = 0; rank < world_size; ++rank) options.processes.push_back("process " + std::to_string(100 + rank) + " on host");
    for (int rank = 0; rank < world_size; ++rank) {
      auto made = std::make_unique<Rank>();
      options.rank = rank;
      auto* raw = made.get();
      made->health = std::make_unique<Health>(*store_, made->activity, options, [raw](const Failure& failure) {
        const std::lock_guard lock(raw->mutex);
        raw->heard = failure;
        raw->changed.notify_all();
      });
      ranks_.push_back(std::move(made));
    }
  }
  // A rank that is gone says no more; one that is stopped neither.
  void lose(int rank) { at(rank).health.reset(); }
  Rank& at(int rank) { return *ranks_[static_cast<size_t>(rank)]; }

  c10::intrusive_ptr<c10d::HashStore> store_ = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(HealthTest, ASilentRankIsNamedByAllWithWhatItDid) {
  start(3, 1s);
  for (const auto& rank : ranks_) rank->activity->enter(Phase::kStep, 12);
  // The others wait for its gradients.
  const Activity::Wait first(at(0).activity.get());
  const Activity::Wait second(at(1).activity.get());
  std::this_thread::sleep_for(300ms);
  lose(2);
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(at(rank).wait().starts_with("rank 2 (process 102 on host) has not answered for more than 1.0s, last seen in step 12"))
        << at(rank).wait();
  }
}

TEST_F(HealthTest, ALostConnectionIsExplainedSooner) {
  start(3, 1min);
  at(1).activity->enter(Phase::kValidation);
  // Some beats later all know what it does.
  std::this_thread::sleep_for(1200ms);
  lose(1);
  const auto before = std::chrono::steady_clock::now();
  const auto failure = at(0).health->first_failure();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 10s);
  ASSERT_TRUE(failure);
  EXPECT_EQ(to_string(*failure), "rank 1 (process 101 on host) ended without a word in validation");
  EXPECT_EQ(at(2).wait(), to_string(*failure));
  EXPECT_FALSE(at(0).heard);
}

TEST_F(HealthTest, WhatARankSaysOfItselfIsWhatAllSay) {
  start(3, 1min);
  at(2).activity->enter(Phase::kLoading, 7);
  at(2).health->report();
  at(0).health->report();
  for (const int rank : {0, 1}) {
    const auto failure = at(rank).health->first_failure();
    ASSERT_TRUE(failure);
    EXPECT_EQ(to_string(*failure), "rank 2 (process 102 on host) failed in loading of step 7; its own message says why");
  }
  EXPECT_FALSE(at(2).heard);
}

TEST_F(HealthTest, WhatTheLauncherSaysIsWhatAllSay) {
  start(2, 1min);
  at(1).activity->enter(Phase::kStep, 3);
  std::this_thread::sleep_for(1200ms);
  at(0).health->report_ended(1, "was killed by signal 9 (Killed)");
  EXPECT_EQ(at(0).wait(), "rank 1 (process 101 on host) was killed by signal 9 (Killed) in step 3");
}

TEST_F(HealthTest, ARankWhoseWorkDoesNotGoOnIsNamedByItselfToo) {
  start(2, 1s);
  at(0).activity->enter(Phase::kStep, 5);
  at(1).activity->enter(Phase::kStep, 5);
  const Activity::Wait wait(at(0).activity.get());
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(at(rank).wait().starts_with("rank 1 (process 101 on host) hangs: ")) << at(rank).wait();
    EXPECT_NE(at(rank).wait().find("in step 5"), std::string::npos);
  }
}

TEST_F(HealthTest, RanksThatWaitForEachOther) {
  start(2, 1s);
  std::vector<std::unique_ptr<Activity::Wait>> waits;
  for (const auto& rank : ranks_) {
    rank->activity->enter(Phase::kStep, 5);
    waits.push_back(std::make_unique<Activity::Wait>(rank->activity.get()));
  }
  EXPECT_TRUE(at(0).wait().starts_with("all ranks wait for each other for ")) << at(0).wait();
}

TEST_F(HealthTest, WorkThatGoesOnAndAStartThatTakesLongAreNoFailures) {
  start(3, 2s);
  for (int i = 0; i < 40; ++i) {
    for (const int rank : {1, 2}) at(rank).activity->enter(Phase::kStep, i);
    std::this_thread::sleep_for(100ms);
  }
  for (const auto& rank : ranks_) EXPECT_FALSE(rank->heard) << to_string(*rank->heard);
}

TEST_F(HealthTest, AnOrderlyEndIsNone) {
  start(2, 1s);
  for (const auto& rank : ranks_) rank->health->finish();
  lose(0);
  std::this_thread::sleep_for(1500ms);
  EXPECT_FALSE(at(1).heard);
  EXPECT_FALSE(at(1).health->first_failure());
}

TEST_F(HealthTest, AllThatAnswerAreNotAccused) {
  start(2, 1min);
  EXPECT_FALSE(at(0).health->first_failure());
}

}  // namespace
}  // namespace trainer::distributed::test
