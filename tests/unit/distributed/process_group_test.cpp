#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/process_groups.h"
#include "tests/testing/ranks.h"
#include "trainer/error.h"

namespace trainer::distributed::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;

TEST(ProcessGroup, CollectivesOfThree) {
  run_ranks(3, [](ProcessGroups& groups) {
    const auto& world = *groups.world();
    const int rank = world.rank();
    EXPECT_EQ(world.size(), 3);

    const auto tensor = torch::tensor({1.0 + rank, 10.0 * rank});
    world.all_reduce(tensor);
    EXPECT_TRUE(tensor.equal(torch::tensor({6.0, 30.0})));
    const auto largest = torch::tensor({int64_t{rank}});
    world.all_reduce(largest, c10d::ReduceOp::MAX);
    EXPECT_EQ(largest.item<int64_t>(), 2);
    world.all_reduce(largest.fill_(rank), c10d::ReduceOp::MIN);
    EXPECT_EQ(largest.item<int64_t>(), 0);

    const auto sent = torch::full({2, 2}, rank, torch::kFloat32);
    world.broadcast(sent, 2);
    EXPECT_TRUE(sent.equal(torch::full({2, 2}, 2.0F)));

    const auto all = world.all_gather(torch::tensor({rank, -rank}));
    EXPECT_TRUE(all.equal(torch::tensor({{0, 0}, {1, -1}, {2, -2}}, all.dtype())));

    const auto part = torch::zeros({2});
    world.scatter(rank == 1 ? torch::arange(6, torch::kFloat32).view({3, 2}) : torch::Tensor(), part, 1);
    EXPECT_TRUE(part.equal(torch::tensor({2.0F * static_cast<float>(rank), 2.0F * static_cast<float>(rank) + 1.0F})));
    world.barrier();
  });
}

TEST(ProcessGroup, BytesOfUnequalLength) {
  run_ranks(3, [](ProcessGroups& groups) {
    const auto& world = *groups.world();
    const std::string mine(static_cast<size_t>(world.rank()) * 2, static_cast<char>('a' + world.rank()));
    EXPECT_THAT(world.all_gather_bytes(mine), ElementsAre("", "bb", "cccc"));
    EXPECT_THAT(world.all_gather_bytes(""), ElementsAre("", "", ""));
    EXPECT_EQ(world.broadcast_bytes(mine, 2), "cccc");
    EXPECT_EQ(world.broadcast_bytes(mine, 0), "");
  });
}

TEST(ProcessGroup, OneProcessNeedsNoSockets) {
  ProcessGroups groups(this_process());
  const auto& world = *groups.world();
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  const auto tensor = torch::tensor({1.5});
  world.all_reduce(tensor);
  world.broadcast(tensor);
  EXPECT_EQ(tensor.item<double>(), 1.5);
  EXPECT_EQ(world.all_gather(tensor).sizes(), (std::vector<int64_t>{1, 1}));
  EXPECT_THAT(world.all_gather_bytes("x"), ElementsAre("x"));
  EXPECT_EQ(world.broadcast_bytes("x"), "x");
  const auto part = torch::zeros({1});
  world.scatter(torch::ones({1, 1}), part);
  EXPECT_EQ(part.item<float>(), 1);
  EXPECT_EQ(groups.new_group({0}), groups.world());
  groups.shutdown();
}

TEST(ProcessGroups, EveryRankCreatesEveryGroup) {
  run_ranks(4, [](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    const auto ends = groups.new_group({3, 0});
    const auto middle = groups.new_group({1, 2});
    const bool is_end = rank == 0 || rank == 3;
    EXPECT_EQ(ends == nullptr, !is_end);
    EXPECT_EQ(middle == nullptr, is_end);
    const auto& mine = is_end ? ends : middle;
    EXPECT_EQ(mine->size(), 2);
    EXPECT_EQ(mine->rank(), rank / 2);
    const auto sum = torch::tensor({int64_t{rank}});
    mine->all_reduce(sum);
    EXPECT_EQ(sum.item<int64_t>(), 3);
  });
}

TEST(ProcessGroups, RefusesNcclOnACpu) {
  EXPECT_THAT([] { (void)uses_nccl({.backend = BackendChoice::kNccl}); },
              ThrowsMessage<UsageError>(HasSubstr("distributed.backend: nccl supports only GPU tensors")));
}

TEST(ProcessGroups, ALostRankIsAPeerError) {
  const auto lose_a_rank = [] {
    run_ranks(2, [](ProcessGroups& groups) {
      const auto& world = *groups.world();
      if (world.rank() == 1) throw std::runtime_error("this rank is lost");
      EXPECT_THAT([&] { world.all_reduce(torch::zeros({1})); },
                  ThrowsMessage<PeerError>(HasSubstr("rank 0: all_reduce among ranks 0, 1 failed")));
      throw std::runtime_error("and this one ends too");
    });
  };
  EXPECT_THROW(lose_a_rank(), std::runtime_error);
}

TEST(ProcessGroups, UnknownInterface) {
  EXPECT_THAT([] { ProcessGroups(nullptr, 0, 2, {.gloo_interface = "no-such0"}); },
              ThrowsMessage<UsageError>(HasSubstr("GLOO_SOCKET_IFNAME=no-such0")));
}

}  // namespace
}  // namespace trainer::distributed::test
