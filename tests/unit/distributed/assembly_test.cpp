#include "distributed/assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"

namespace trainer::distributed::test {
namespace {

using ::testing::ElementsAre;

// What each of three ranks ends with: the result, or the error.
std::vector<std::string> three_ranks(const std::function<std::string(Assembly& assembly, int rank)>& work) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      Assembly assembly(store, rank, 3, std::chrono::minutes(1));
      try {
        return work(assembly, rank);
      } catch (const Error& error) {
        return "error " + std::to_string(static_cast<int>(error.exit_code())) + ": " + error.what();
      }
    }));
  }
  std::vector<std::string> outcomes;
  for (auto& rank : ranks) outcomes.push_back(rank.get());
  return outcomes;
}

TEST(Assembly, AllGetWhatTheFirstFound) {
  const auto outcomes = three_ranks([](Assembly& assembly, int rank) {
    assembly.together([] {});
    return std::to_string(rank) + assembly.by_first([&] { return " hears " + std::to_string(rank); });
  });
  EXPECT_THAT(outcomes, ElementsAre("0 hears 0", "1 hears 0", "2 hears 0"));
}

TEST(Assembly, OneRanksErrorEndsAllAndIsSaidOnce) {
  const auto outcomes = three_ranks([](Assembly& assembly, int rank) -> std::string {
    assembly.together([&] {
      if (rank == 2) throw DataError("a file is missing");
    });
    return "not reached";
  });
  EXPECT_THAT(outcomes, ElementsAre("error 3: rank 2: a file is missing", "error 3: ", "error 3: "));
}

TEST(Assembly, TheSameErrorEverywhereNeedsNoRank) {
  const auto outcomes = three_ranks([](Assembly& assembly, int) -> std::string {
    assembly.together([] { throw UsageError("no such model"); });
    return "not reached";
  });
  EXPECT_THAT(outcomes, ElementsAre("error 2: no such model", "error 2: ", "error 2: "));
}

TEST(Assembly, OfOneProcess) {
  Assembly assembly;
  EXPECT_EQ(assembly.by_first([] { return std::string("word"); }), "word");
  EXPECT_THROW(assembly.together([] { throw UsageError("said as it is"); }), UsageError);
}

}  // namespace
}  // namespace trainer::distributed::test
