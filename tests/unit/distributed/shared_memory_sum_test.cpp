#include "distributed/shared_memory_sum.h"

#include <gtest/gtest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/testing/ranks.h"

namespace trainer::distributed::test {
namespace {

using testing::run_ranks;
using namespace std::chrono_literals;

constexpr std::array kSumTypes{torch::kFloat32, torch::kFloat64, torch::kBFloat16};

torch::Tensor summand(int rank, int64_t size, torch::ScalarType dtype, int round) {
  return torch::arange(size, torch::kFloat64).add(1000 * rank + 17 * round).sin().mul(8).to(dtype);
}

torch::Tensor sum_in_rank_order_of(int world_size, int64_t size, torch::ScalarType dtype, int round) {
  auto sum = summand(0, size, dtype, round);
  for (int rank = 1; rank < world_size; ++rank) sum = sum + summand(rank, size, dtype, round);
  return sum;
}

TEST(SharedMemorySum, AddsInTheOrderOfTheRanksWhoeverIsLate) {
  constexpr int64_t kLargest = 5000;
  for (const int world_size : {1, 2, 3, 4}) {
    run_ranks(world_size, [&](ProcessGroups& groups) {
      const int rank = groups.world()->rank();
      const auto sums = SharedMemorySum::make(*groups.world(), 64 * 8 * kLargest, 1min);
      ASSERT_NE(sums, nullptr);
      for (int round = 0; round < 20; ++round) {
        // Fewer values than ranks, none, and numbers that no number of ranks divides.
        const std::vector<int64_t> sizes{1 + round, 0, 37 * round + 3, kLargest - round};
        std::vector<torch::Tensor> tensors;
        for (const auto dtype : kSumTypes) {
          for (const auto size : sizes) {
            if ((round + rank + static_cast<int>(tensors.size())) % 7 == 0) std::this_thread::sleep_for(1ms);
            tensors.push_back(summand(rank, size, dtype, round));
            sums->begin(tensors.back());
          }
        }
        sums->finish();
        for (size_t i = 0; i < tensors.size(); ++i) {
          const auto expected = sum_in_rank_order_of(world_size, sizes[i % sizes.size()], kSumTypes[i / sizes.size()], round);
          EXPECT_TRUE(tensors[i].equal(expected)) << world_size << " ranks, round " << round << ", tensor " << i;
        }
      }
    });
  }
}

TEST(SharedMemorySum, DoesNotWaitBeforeTheEnd) {
  run_ranks(2, [](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    const auto sums = SharedMemorySum::make(*groups.world(), 1024, 1min);
    const auto tensors = std::vector{summand(rank, 20, torch::kFloat32, 0), summand(rank, 30, torch::kFloat32, 0)};
    // Rank 1 begins only when rank 0 has begun both.
    if (rank == 1) groups.world()->barrier();
    for (const auto& tensor : tensors) sums->begin(tensor);
    if (rank == 0) groups.world()->barrier();
    sums->finish();
    EXPECT_TRUE(tensors[1].equal(sum_in_rank_order_of(2, 30, torch::kFloat32, 0)));
  });
}

TEST(SharedMemorySum, ARankThatLeavesIsNamed) {
  run_ranks(2, [](ProcessGroups& groups) {
    const auto sums = SharedMemorySum::make(*groups.world(), 1024, 1min);
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
