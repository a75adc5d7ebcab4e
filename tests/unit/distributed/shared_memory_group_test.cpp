#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "distributed/shared_memory.h"
#include "tests/testing/ranks.h"
#include "trainer/error.h"

namespace trainer::distributed::test {
namespace {

using testing::run_ranks;
using namespace std::chrono_literals;

torch::Tensor values_of(int rank, int64_t size, torch::ScalarType dtype, int round) {
  return torch::arange(size, torch::kFloat64).add(1000 * rank + 17 * round).sin().mul(8).to(dtype);
}

// The sum in the order of the ranks, in the tensor's type.
torch::Tensor expected_sum(int world_size, int64_t size, torch::ScalarType dtype, int round) {
  auto sum = values_of(0, size, dtype, round);
  for (int rank = 1; rank < world_size; ++rank) sum = sum + values_of(rank, size, dtype, round);
  return sum;
}

// Sums and gathers of many sizes, one after the other, by ranks that arrive in a different order each time.
void expect_right_results(const ProcessGroup& group) {
  const int world_size = group.size();
  for (int round = 0; round < 30; ++round) {
    if ((round + group.rank()) % 5 == 0) std::this_thread::sleep_for(2ms);
    const int64_t size = 1 + 37 * round;
    const std::vector<torch::Tensor> tensors{values_of(group.rank(), size, torch::kFloat32, round),
                                             values_of(group.rank(), 3, torch::kFloat64, round),
                                             values_of(group.rank(), size, torch::kBFloat16, round)};
    group.sum_in_rank_order(tensors);
    EXPECT_TRUE(tensors[0].equal(expected_sum(world_size, size, torch::kFloat32, round)));
    EXPECT_TRUE(tensors[1].equal(expected_sum(world_size, 3, torch::kFloat64, round)));
    EXPECT_TRUE(tensors[2].equal(expected_sum(world_size, size, torch::kBFloat16, round)));

    const auto all = group.all_gather(values_of(group.rank(), size, torch::kFloat32, round));
    for (int rank = 0; rank < world_size; ++rank) EXPECT_TRUE(all[rank].equal(values_of(rank, size, torch::kFloat32, round)));
  }
}

// The group's sequence number counts the collectives that go through sockets.
uint64_t num_sent(const ProcessGroup& group) { return group.c10d_group()->getSequenceNumberForGroup(); }

TEST(SharedMemoryGroup, SumsInTheOrderOfTheRanksWithAndWithoutSharedMemory) {
  for (const int world_size : {1, 2, 3, 4}) {
    run_ranks(world_size, [](ProcessGroups& groups) {
      auto& group = *groups.world();
      expect_right_results(group);
      group.share_memory(8192);
      const auto before = num_sent(group);
      expect_right_results(group);
      EXPECT_EQ(num_sent(group), before);
    });
  }
}

TEST(SharedMemoryGroup, LargeTensorsUseSockets) {
  run_ranks(2, [](ProcessGroups& groups) {
    auto& group = *groups.world();
    group.share_memory(1024);
    for (const int64_t size : {256, 257, 5000}) {
      const auto before = num_sent(group);
      const auto tensor = values_of(group.rank(), size, torch::kFloat32, 0);
      group.sum_in_rank_order({&tensor, 1});
      EXPECT_TRUE(tensor.equal(expected_sum(2, size, torch::kFloat32, 0)));
      EXPECT_EQ(num_sent(group) > before, size > 256) << size;
    }
  });
}

TEST(SharedMemoryGroup, WithoutSharedMemorySocketsAreUsed) {
  // Limits the size of new files, including those in shared memory.
  const rlimit small{.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  run_ranks(2, [](ProcessGroups& groups) {
    EXPECT_EQ(make_in_shared_memory<SharedMemoryGroup>(*groups.world(), 8192, 1s), nullptr);
    groups.world()->share_memory(8192);
    expect_right_results(*groups.world());
  });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
}

// The error of rank 0 of two when rank 1 calls `leave` instead of computing a sum.
std::string error_of_a_sum(std::chrono::milliseconds timeout, const std::function<void(std::unique_ptr<SharedMemoryGroup>)>& leave) {
  std::string message;
  run_ranks(2, [&](ProcessGroups& groups) {
    auto exchange = make_in_shared_memory<SharedMemoryGroup>(*groups.world(), 1024, timeout);
    const auto tensor = torch::ones({4});
    exchange->sum({&tensor, 1});
    if (groups.world()->rank() == 1) return leave(std::move(exchange));
    try {
      exchange->sum({&tensor, 1});
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
  });
  return message;
}

TEST(SharedMemoryGroup, ARankThatLeavesIsNamed) {
  EXPECT_EQ(error_of_a_sum(1min, [](auto exchange) { exchange.reset(); }), "rank 1 has left the group");
  EXPECT_EQ(error_of_a_sum(1min,
                           [](auto exchange) {
                             std::this_thread::sleep_for(100ms);
                             exchange->leave();
                             std::this_thread::sleep_for(200ms);
                           }),
            "rank 1 has left the group");
}

TEST(SharedMemoryGroup, ErrorNamesARankThatDoesNotArrive) {
  EXPECT_EQ(error_of_a_sum(1s, [](auto /*stays until rank 0 has given up*/) { std::this_thread::sleep_for(2s); }),
            "rank 1 did not take part in the collective within 1 s");
}

TEST(SharedMemoryGroup, AbortEndsAWaitOnAnotherThread) {
  run_ranks(2, [](ProcessGroups& groups) {
    auto& group = *groups.world();
    group.share_memory(1024);
    if (group.rank() == 1) return;
    std::thread other([&] {
      std::this_thread::sleep_for(100ms);
      group.abort();
    });
    const auto tensor = torch::ones({4});
    std::string message;
    try {
      group.sum_in_rank_order({&tensor, 1});
    } catch (const PeerError& error) {
      message = error.what();
    }
    other.join();
    EXPECT_EQ(message,
              "rank 0: sum among ranks 0, 1 failed: the group was aborted on this rank; check whether another rank exited or hangs");
  });
}

}  // namespace
}  // namespace trainer::distributed::test
