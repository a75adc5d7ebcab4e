#include "distributed/supervision/failure_detector.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "distributed/stores.h"
#include "tests/testing/counting_store.h"

namespace trainer::supervision::test {
namespace {

using namespace std::chrono_literals;
using distributed::Activity;
using distributed::Phase;

// The failure detectors of the ranks of one run, over a store in memory. Any rank may be lost at any time.
class FailureDetectorTest : public ::testing::Test {
 protected:
  struct Rank {
    std::shared_ptr<Activity> activity = std::make_shared<Activity>();
    testing::CountingStore::Counter num_messages = std::make_shared<std::atomic<int64_t>>(0);
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Failure> reported;
    std::unique_ptr<FailureDetector> detector;

    // The failure that its threads report, or "nothing" after 20 s.
    std::string wait() {
      std::unique_lock lock(mutex);
      changed.wait_for(lock, 20s, [this] { return reported.has_value(); });
      return reported ? to_string(*reported) : "nothing";
    }
  };

  void start(int world_size, std::chrono::milliseconds hang_limit) {
    FailureDetectorOptions options{.rank0_serves_store = false, .hang_limit = hang_limit};
    for (int rank = 0; rank < world_size; ++rank) options.ranks.push_back({.host = "host", .process_id = 100 + rank});
    for (int rank = 0; rank < world_size; ++rank) {
      auto made = std::make_unique<Rank>();
      options.rank = rank;
      auto* raw = made.get();
      testing::CountingStore store(store_, made->num_messages);
      made->detector = std::make_unique<FailureDetector>(store, made->activity, options, [raw](const Failure& failure) {
        const std::lock_guard lock(raw->mutex);
        raw->reported = failure;
        raw->changed.notify_all();
      });
      ranks_.push_back(std::move(made));
    }
  }
  // Waits until the other ranks can read the rank's current activity.
  void wait_until_published(int rank) {
    const auto num_changes = at(rank).activity->read().num_changes;
    wait_until([&] { return published(rank).num_changes == num_changes; });
  }
  distributed::ActivityState published(int rank) const {
    if (rank == 0) return value_of<Digest>("digest").rank0;
    return value_of<Heartbeat>("heartbeat/" + std::to_string(rank)).state;
  }
  template <class T>
  T value_of(const std::string& name) const {
    const auto key = "failure_detector/" + name;
    return store_->check({key}) ? distributed::from_bytes(store_->get(key)).get<T>() : T();
  }
  void wait_until(const std::function<bool()>& is_reached) const {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!is_reached() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(is_reached());
  }
  // Ends the heartbeats of a rank, like the end or a stop of its process.
  void lose(int rank) { at(rank).detector.reset(); }
  Rank& at(int rank) { return *ranks_[static_cast<size_t>(rank)]; }

  c10::intrusive_ptr<c10d::HashStore> store_ = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(FailureDetectorTest, AllRanksNameASilentRankAndItsActivity) {
  start(3, 1s);
  for (const auto& rank : ranks_) rank->activity->enter(Phase::kStep, 12);
  // Ranks 0 and 1 wait for the gradients of rank 2.
  const Activity::Wait first(at(0).activity.get());
  const Activity::Wait second(at(1).activity.get());
  wait_until_published(2);
  lose(2);
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(at(rank).wait().starts_with("rank 2 (process 102 on host) has not answered for more than 1.0s, last seen in step 12"))
        << at(rank).wait();
  }
}

TEST_F(FailureDetectorTest, RanksThatDoNotExistAreIgnored) {
  start(2, 1s);
  lose(0);
  const Digest forged{.number = 1'000'000, .rank0 = {}, .silent = {7, 1h}, .stuck = {-1, 1h}};
  store_->set("failure_detector/digest", distributed::to_bytes(forged));
  EXPECT_TRUE(at(1).wait().starts_with("rank 0 (process 100 on host) has not answered for more than 1.0s")) << at(1).wait();
}

TEST_F(FailureDetectorTest, ALostConnectionIsDiagnosedBeforeTheHangLimit) {
  start(3, 1min);
  at(1).activity->enter(Phase::kValidation);
  wait_until_published(1);
  lose(1);
  const auto before = std::chrono::steady_clock::now();
  const auto failure = at(0).detector->first_failure();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 10s);
  ASSERT_TRUE(failure);
  EXPECT_EQ(to_string(*failure), "rank 1 (process 101 on host) exited without reporting an error in validation");
  EXPECT_EQ(at(2).wait(), to_string(*failure));
  EXPECT_FALSE(at(0).reported);
}

TEST_F(FailureDetectorTest, AllReportWhatARankReportsOfItself) {
  start(3, 1min);
  at(2).activity->enter(Phase::kLoading, 7);
  at(2).detector->report_own_failure();
  at(0).detector->report_own_failure();
  for (const int rank : {0, 1}) {
    const auto failure = at(rank).detector->first_failure();
    ASSERT_TRUE(failure);
    EXPECT_EQ(to_string(*failure), "rank 2 (process 102 on host) failed in loading of step 7; see its own message for the reason");
  }
  EXPECT_FALSE(at(2).reported);
}

TEST_F(FailureDetectorTest, AllReportWhatTheLauncherReports) {
  start(2, 1min);
  at(1).activity->enter(Phase::kStep, 3);
  wait_until_published(1);
  at(0).detector->report_ended(1, "was killed by signal 9 (Killed)");
  EXPECT_EQ(at(0).wait(), "rank 1 (process 101 on host) was killed by signal 9 (Killed) in step 3");
}

TEST_F(FailureDetectorTest, AllReportARankThatIsLateInTheStartUp) {
  start(3, 1min);
  at(0).detector->report_late(1, 2s);
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(at(rank).wait(),
              "rank 1 (process 101 on host) has not finished its part of the start-up within 2.0s; see its output, or raise "
              "distributed.timeout_seconds if it needs longer");
  }
}

TEST_F(FailureDetectorTest, ARankWithoutProgressIsNamedByItselfToo) {
  start(2, 1s);
  at(0).activity->enter(Phase::kStep, 5);
  at(1).activity->enter(Phase::kStep, 5);
  const Activity::Wait wait(at(0).activity.get());
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(at(rank).wait().starts_with("rank 1 (process 101 on host) is stuck: ")) << at(rank).wait();
    // Rank 0, which may serve the store, ends only after both ranks have read the failure.
    EXPECT_EQ(store_->add("failure_detector/confirmed", 0), 2);
    EXPECT_NE(at(rank).wait().find("in step 5"), std::string::npos);
  }
}

TEST_F(FailureDetectorTest, RanksThatWaitForEachOther) {
  start(2, 1s);
  std::vector<std::unique_ptr<Activity::Wait>> waits;
  for (const auto& rank : ranks_) {
    rank->activity->enter(Phase::kStep, 5);
    waits.push_back(std::make_unique<Activity::Wait>(rank->activity.get()));
  }
  EXPECT_TRUE(at(0).wait().starts_with("all ranks have been waiting for each other for ")) << at(0).wait();
}

TEST_F(FailureDetectorTest, AnOrderlyEndIsNotAFailure) {
  start(2, 1s);
  for (const auto& rank : ranks_) rank->detector->finish();
  lose(0);
  EXPECT_FALSE(at(1).detector->first_failure());
  lose(1);
  EXPECT_FALSE(at(1).reported);
}

TEST_F(FailureDetectorTest, RanksThatAnswerAreNotBlamed) {
  start(2, 1min);
  EXPECT_FALSE(at(0).detector->first_failure());
}

// With torchrun, the store does not end with rank 0; only the heartbeats end.
TEST_F(FailureDetectorTest, Rank0IsNamedWhenItsDigestsStop) {
  start(3, 1s);
  at(0).activity->enter(Phase::kStep, 12);
  const Activity::Wait first(at(1).activity.get());
  const Activity::Wait second(at(2).activity.get());
  wait_until_published(0);
  const auto before = std::chrono::steady_clock::now();
  lose(0);
  for (const int rank : {1, 2}) {
    EXPECT_TRUE(at(rank).wait().starts_with("rank 0 (process 100 on host) has not answered for more than 1.0s, last seen in step 12"))
        << at(rank).wait();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - before, 1s + 5s);
}

TEST_F(FailureDetectorTest, ARankThatMissesDigestsBlamesNoPeer) {
  start(4, 1min);
  for (const auto& rank : ranks_) rank->activity->enter(Phase::kStep, 3);
  for (const int rank : {0, 1, 2, 3}) wait_until_published(rank);
  lose(0);
  lose(2);
  lose(3);
  const auto failure = at(1).detector->first_failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(to_string(*failure), "rank 0 (process 100 on host) exited without reporting an error in step 3");
}

TEST_F(FailureDetectorTest, ARankCostsTheStoreThreeMessagesAnInterval) {
  constexpr int kNumRanks = 16;
  start(kNumRanks, 1min);
  const auto num_heartbeats_of = [&](int rank) {
    return static_cast<int64_t>(value_of<Heartbeat>("heartbeat/" + std::to_string(rank)).number);
  };
  wait_until([&] {
    bool have_several = value_of<Digest>("digest").number > 5;
    for (int rank = 1; rank < kNumRanks; ++rank) have_several = have_several && num_heartbeats_of(rank) > 5;
    return have_several;
  });
  for (const auto& rank : ranks_) rank->detector->finish();
  for (const auto& rank : ranks_) rank->detector.reset();
  const auto num_digests = static_cast<int64_t>(value_of<Digest>("digest").number);
  // The first terms count the messages that create the keys.
  EXPECT_EQ(*at(0).num_messages, 2 + (kNumRanks - 1) + 3 * num_digests);
  for (int rank = 1; rank < kNumRanks; ++rank) {
    EXPECT_EQ(*at(rank).num_messages, 2 + 3 * num_heartbeats_of(rank));
  }
}

}  // namespace
}  // namespace trainer::supervision::test
