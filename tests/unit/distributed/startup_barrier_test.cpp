#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "distributed/agreement.h"
#include "distributed/stores.h"
#include "trainer/error.h"

namespace trainer::distributed::test {
namespace {

using ::testing::ElementsAre;

// The result or the error of each of three ranks.
std::vector<std::string> three_ranks(const std::function<std::string(StartupBarrier& barrier, int rank)>& work) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      StartupBarrier barrier(store, rank, 3, std::chrono::minutes(1));
      try {
        return work(barrier, rank);
      } catch (const Error& error) {
        return "error " + std::to_string(static_cast<int>(error.exit_code())) + ": " + error.what();
      }
    }));
  }
  std::vector<std::string> outcomes;
  for (auto& rank : ranks) outcomes.push_back(rank.get());
  return outcomes;
}

TEST(StartupBarrier, AllRanksGetTheResultOfRank0) {
  const auto outcomes = three_ranks([](StartupBarrier& barrier, int rank) {
    barrier.on_all_ranks([] {});
    return std::to_string(rank) + barrier.on_rank0([&] { return " receives " + std::to_string(rank); });
  });
  EXPECT_THAT(outcomes, ElementsAre("0 receives 0", "1 receives 0", "2 receives 0"));
}

TEST(StartupBarrier, AllRanksGetTheResultsOfAllRanks) {
  const auto outcomes = three_ranks([](StartupBarrier& barrier, int rank) {
    const auto results = barrier.gather([&] { return "of " + std::to_string(rank); });
    return results[0] + ", " + results[1] + ", " + results[2];
  });
  EXPECT_THAT(outcomes, ElementsAre("of 0, of 1, of 2", "of 0, of 1, of 2", "of 0, of 1, of 2"));
}

TEST(StartupBarrier, OneRanksErrorEndsAllAndIsReportedOnce) {
  const auto outcomes = three_ranks([](StartupBarrier& barrier, int rank) -> std::string {
    barrier.on_all_ranks([&] {
      if (rank == 2) throw DataError("a file is missing");
    });
    return "not reached";
  });
  EXPECT_THAT(outcomes, ElementsAre("error 3: rank 2: a file is missing", "error 3: ", "error 3: "));
}

TEST(StartupBarrier, AnErrorOfAllRanksNamesNoRank) {
  const auto outcomes = three_ranks([](StartupBarrier& barrier, int) -> std::string {
    barrier.on_all_ranks([] { throw UsageError("no such model"); });
    return "not reached";
  });
  EXPECT_THAT(outcomes, ElementsAre("error 2: no such model", "error 2: ", "error 2: "));
}

TEST(StartupBarrier, ARankThatLosesAnotherOneDoesNotWait) {
  StartupBarrier barrier(c10::make_intrusive<c10d::HashStore>(), 2, 3, std::chrono::minutes(1));
  EXPECT_THROW(barrier.on_all_ranks([] { throw PeerError("NCCL cannot connect 3 GPUs"); }), PeerError);
}

TEST(StartupBarrier, ALateRankIsNamedWithoutKeysOfTheStore) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  StartupBarrier barrier(store, 0, 3, std::chrono::milliseconds(200));
  store->set("step0/1", to_bytes({{"problem", Problem()}, {"result", ""}}));
  try {
    barrier.on_all_ranks([] {});
    FAIL() << "rank 2 is missing";
  } catch (const LateRank& error) {
    EXPECT_EQ(error.rank, 2);
    EXPECT_EQ(error.exit_code(), ExitCode::kPeer);
    EXPECT_STREQ(error.what(),
                 "rank 2 has not finished its part of the start-up within 0.2s; see its output, or raise distributed.timeout_seconds if it "
                 "needs longer");
  }
}

TEST(StartupBarrier, OneProcess) {
  StartupBarrier barrier;
  EXPECT_EQ(barrier.on_rank0([] { return std::string("word"); }), "word");
  EXPECT_THAT(barrier.gather([] { return std::string("own"); }), ElementsAre("own"));
  EXPECT_THROW(barrier.on_all_ranks([] { throw UsageError("unchanged"); }), UsageError);
}

}  // namespace
}  // namespace trainer::distributed::test
