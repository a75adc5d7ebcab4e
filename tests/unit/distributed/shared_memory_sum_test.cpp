#include <gtest/gtest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "distributed/shared_memory.h"
#include "tests/testing/ranks.h"

namespace trainer::distributed::test {
namespace {

using testing::run_ranks;
using namespace std::chrono_literals;

torch::Tensor summand(int rank, int64_t size, torch::ScalarType dtype, int64_t round) {
  return torch::arange(size, torch::kFloat64).add(1000 * rank + 17 * round).sin().mul(8).to(dtype);
}

TEST(SharedMemorySum, HasTheBitsOfGlooWhoeverIsLate) {
  constexpr int64_t kLargest = 1'500'000;
  for (const int world_size : {1, 2, 3, 4}) {
    run_ranks(world_size, [&](ProcessGroups& groups) {
      const int rank = groups.world()->rank();
      const auto sums = make_in_shared_memory<SharedMemorySum>(*groups.world(), 2 * 8 * kLargest, 1min);
      ASSERT_NE(sums, nullptr);
      for (int64_t round = 0; round < 10; ++round) {
        // Sizes: less than the number of ranks, zero, not divisible by most numbers of ranks, and several of gloo's segments for each rank.
        std::vector<torch::Tensor> tensors, expected;
        for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
          for (const int64_t size : {1 + round, int64_t{0}, 37 * round + 3, 60'001 - round, round == 5 ? kLargest - 60'500 : 7}) {
            if ((round + rank + static_cast<int64_t>(tensors.size())) % 7 == 0) std::this_thread::sleep_for(1ms);
            tensors.push_back(summand(rank, size, dtype, round));
            expected.push_back(tensors.back().clone());
            sums->begin(tensors.back());
          }
        }
        sums->finish();
        for (size_t i = 0; i < tensors.size(); ++i) {
          if (expected[i].numel() > 0) groups.world()->all_reduce(expected[i]);
          EXPECT_TRUE(tensors[i].equal(expected[i])) << world_size << " ranks, round " << round << ", tensor " << i;
        }
      }
    });
  }
}

TEST(SharedMemorySum, DoesNotWaitBeforeTheEnd) {
  run_ranks(2, [](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    const auto sums = make_in_shared_memory<SharedMemorySum>(*groups.world(), 1024, 1min);
    const auto tensors = std::vector{summand(rank, 20, torch::kFloat32, 0), summand(rank, 30, torch::kFloat32, 0)};
    // Rank 1 begins only after rank 0 has begun both sums.
    if (rank == 1) groups.world()->barrier();
    for (const auto& tensor : tensors) sums->begin(tensor);
    if (rank == 0) groups.world()->barrier();
    sums->finish();
    EXPECT_TRUE(tensors[1].equal(summand(0, 30, torch::kFloat32, 0) + summand(1, 30, torch::kFloat32, 0)));
  });
}

TEST(SharedMemorySum, ARankThatLeavesIsNamed) {
  run_ranks(2, [](ProcessGroups& groups) {
    const auto sums = make_in_shared_memory<SharedMemorySum>(*groups.world(), 1024, 1min);
    if (groups.world()->rank() == 1) return;
    const auto tensor = torch::ones({4});
    sums->begin(tensor);
    EXPECT_THROW(
        {
          try {
            sums->finish();
          } catch (const std::runtime_error& error) {
            EXPECT_STREQ(error.what(), "rank 1 has left the group");
            throw;
          }
        },
        std::runtime_error);
  });
}

}  // namespace
}  // namespace trainer::distributed::test
