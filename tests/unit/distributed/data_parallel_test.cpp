#include "distributed/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "distributed/agreement.h"
#include "tests/testing/ranks.h"
#include "trainer/error.h"

namespace trainer::distributed::test {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;

// Two linear layers and a buffer. Every parameter differs between ranks until DataParallel copies those of rank 0.
class Network : public torch::nn::Module {
 public:
  explicit Network(int rank) {
    first = register_parameter("first", torch::full({40, 30}, 0.01 * (rank + 1), torch::kFloat64));
    second = register_parameter("second", torch::full({30, 20}, 0.02 * (rank + 1), torch::kFloat64));
    count = register_buffer("count", torch::full({3}, rank, torch::kInt64));
  }
  torch::Tensor forward(const torch::Tensor& x, bool with_second = true) const {
    const auto hidden = torch::tanh(x.mm(first));
    return with_second ? hidden.mm(second) : hidden;
  }
  torch::Tensor first, second, count;
};

torch::Tensor samples(int64_t begin, int64_t end) {
  return torch::arange(begin * 40, end * 40, torch::kFloat64).view({end - begin, 40}).mul(0.37).sin();
}

// The gradients of the mean loss over the twelve samples.
std::vector<torch::Tensor> gradients_of_one_process() {
  Network network(0);
  network.forward(samples(0, 12)).square().sum(1).mean().backward();
  return {network.first.grad(), network.second.grad()};
}

constexpr std::array kExchanges{GradientExchange::kAllReduce, GradientExchange::kSharedMemory, GradientExchange::kAfterBackward};

double difference(const torch::Tensor& a, const torch::Tensor& b) { return ((a - b).abs().max() / b.abs().max()).item<double>(); }

// Begin and end of a rank's part of the twelve samples. Parts are uneven; from rank 2 on, they are empty.
std::pair<int64_t, int64_t> part_of(int rank, int world_size) {
  if (world_size == 1) return {0, 12};
  if (rank == 0) return {0, 7};
  return rank == 1 ? std::pair<int64_t, int64_t>{7, 12} : std::pair<int64_t, int64_t>{12, 12};
}

void backward_of_part(DataParallel& parallel, Network& network, int rank, int world_size, bool is_first = true, bool is_last = true) {
  const auto [begin, end] = part_of(rank, world_size);
  parallel.before_forward(is_first, is_last);
  const auto outputs = network.forward(samples(begin, end));
  // The sum over this rank's samples is divided by the total number of samples, so that the ranks' gradients add up to those of the mean.
  const auto loss = outputs.square().sum() / 12;
  parallel.backward(loss, is_last);
}

std::vector<std::pair<GradientExchange, bool>> exchanges_with_and_without_views() {
  std::vector<std::pair<GradientExchange, bool>> all;
  for (const auto exchange : kExchanges) {
    for (const bool as_view : {true, false}) all.emplace_back(exchange, as_view);
  }
  return all;
}

TEST(DataParallel, GradientsOfUnevenPartsEqualThoseOfTheJoinedBatch) {
  const auto expected = gradients_of_one_process();
  for (const auto& [exchange, as_view] : exchanges_with_and_without_views()) {
    for (const bool find_unused : {true, false}) {
      for (const double bucket_cap_mb : {25.0, 0.004}) {
        for (const int world_size : {1, 2, 3, 4}) {
          std::mutex mutex;
          std::vector<std::vector<torch::Tensor>> all;
          run_ranks(world_size, [&](ProcessGroups& groups) {
            const int rank = groups.world()->rank();
            Network network(rank);
            DataParallelOptions options;
            options.gradient_as_bucket_view = as_view;
            options.find_unused_parameters = find_unused;
            options.bucket_cap_mb = bucket_cap_mb;
            DataParallel parallel(network, groups.world(), options, /*averages=*/false, exchange);
            for (int step = 0; step < 3; ++step) {
              network.zero_grad();
              backward_of_part(parallel, network, rank, world_size);
            }
            const std::lock_guard lock(mutex);
            all.push_back({network.first.grad().clone(), network.second.grad().clone()});
            EXPECT_EQ(parallel.bucket_sizes().size(), bucket_cap_mb < 1 ? 2U : 1U);
          });
          for (const auto& gradients : all) {
            for (size_t i = 0; i < expected.size(); ++i) {
              EXPECT_LE(difference(gradients[i], expected[i]), 1e-13)
                  << world_size << " ranks, view " << as_view << ", exchange " << static_cast<int>(exchange);
              EXPECT_TRUE(gradients[i].equal(all.front()[i])) << "the bits differ between ranks";
            }
          }
        }
      }
    }
  }
}

TEST(DataParallel, ParametersAndBuffersAreCopiedFromRank0) {
  run_ranks(3, [](ProcessGroups& groups) {
    Network network(groups.world()->rank());
    const DataParallel parallel(network, groups.world(), {});
    EXPECT_TRUE(network.first.equal(Network(0).first));
    EXPECT_TRUE(network.second.equal(Network(0).second));
    EXPECT_TRUE(network.count.equal(Network(0).count));
    EXPECT_FALSE(network.first.grad().defined());
  });
}

TEST(DataParallel, BuffersAreBroadcastAtTheFirstMicroStep) {
  for (const bool broadcast_buffers : {true, false}) {
    run_ranks(2, [&](ProcessGroups& groups) {
      const int rank = groups.world()->rank();
      Network network(rank);
      DataParallelOptions options;
      options.broadcast_buffers = broadcast_buffers;
      DataParallel parallel(network, groups.world(), options);
      network.count.fill_(rank + 5);
      backward_of_part(parallel, network, rank, 2, /*is_first=*/false, /*is_last=*/true);
      EXPECT_EQ(network.count[0].item<int64_t>(), rank + 5);
      backward_of_part(parallel, network, rank, 2);
      EXPECT_EQ(network.count[0].item<int64_t>(), broadcast_buffers ? 5 : rank + 5);
      network.count.fill_(rank + 8);
      parallel.sync_buffers();
      EXPECT_EQ(network.count[0].item<int64_t>(), 8);
    });
  }
}

TEST(DataParallel, GradientsStayLocalUntilTheLastMicroStep) {
  const auto expected = gradients_of_one_process();
  run_ranks(2, [&](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    Network network(rank);
    DataParallel parallel(network, groups.world(), {});
    const auto half = [&](bool is_first, bool is_last) {
      const auto [begin, end] = part_of(rank, 2);
      const int64_t middle = begin + (end - begin) / 3;
      parallel.before_forward(is_first, is_last);
      const auto outputs = network.forward(is_first ? samples(begin, middle) : samples(middle, end));
      parallel.backward(outputs.square().sum() / 12, is_last);
    };
    half(true, false);
    EXPECT_GT(difference(network.first.grad(), expected[0]), 0.1);
    half(false, true);
    EXPECT_LE(difference(network.first.grad(), expected[0]), 1e-13);
    EXPECT_LE(difference(network.second.grad(), expected[1]), 1e-13);
  });
}

// The group's sequence number counts the collectives of each rank that go through sockets.
TEST(DataParallel, AStepSynchronisesOnceHoweverManyMicroStepsItHas) {
  for (const auto exchange : kExchanges) {
    run_ranks(2, [&](ProcessGroups& groups) {
      const int rank = groups.world()->rank();
      Network network(rank);
      DataParallelOptions options;
      options.broadcast_buffers = false;
      options.bucket_cap_mb = 0.004;
      DataParallel parallel(network, groups.world(), options, /*averages=*/false, exchange);
      const auto num_collectives = [&] { return groups.world()->c10d_group()->getSequenceNumberForGroup(); };
      for (const int num_micro_steps : {1, 2, 5}) {
        const auto before = num_collectives();
        for (int i = 0; i < num_micro_steps; ++i) backward_of_part(parallel, network, rank, 2, i == 0, i + 1 == num_micro_steps);
        const auto expected = exchange == GradientExchange::kAllReduce ? parallel.bucket_sizes().size() : 0;
        EXPECT_EQ(num_collectives() - before, expected) << num_micro_steps << " micro-steps";
      }
    });
  }
}

TEST(DataParallel, TheBitsDoNotDependOnTheExchange) {
  for (const int world_size : {2, 3, 4}) {
    std::vector<torch::Tensor> first;
    for (const auto exchange : kExchanges) {
      // With more than two ranks, gloo's ring does not add in the order of the ranks.
      if (exchange == GradientExchange::kAfterBackward && world_size > 2) continue;
      run_ranks(world_size, [&](ProcessGroups& groups) {
        const int rank = groups.world()->rank();
        Network network(rank);
        DataParallelOptions options;
        options.bucket_cap_mb = 0.004;
        DataParallel parallel(network, groups.world(), options, /*averages=*/false, exchange);
        parallel.before_forward(/*is_first=*/true, /*is_last=*/true);
        const auto outputs = network.forward(samples(3 * rank, 3 * rank + 3));
        parallel.backward(outputs.square().sum(), /*is_last=*/true);
        if (rank != 0) return;
        if (first.empty()) first = {network.first.grad().clone(), network.second.grad().clone()};
        EXPECT_TRUE(network.first.grad().equal(first[0]) && network.second.grad().equal(first[1])) << world_size << " ranks";
      });
    }
  }
}

TEST(DataParallel, LargeGradientsAreSummedInSharedMemory) {
  run_ranks(2, [](ProcessGroups& groups) {
    torch::nn::Linear network(1024, 1024);
    DataParallel parallel(*network, groups.world(), {});
    EXPECT_EQ(parallel.exchange(), GradientExchange::kSharedMemory);
  });
}

TEST(DataParallel, CompressedGradientsAreRounded) {
  const auto expected = gradients_of_one_process();
  for (const auto compression : {GradientCompression::kFloat16, GradientCompression::kBfloat16}) {
    // Each rank's part and the sum are rounded, both by at most 2^-11 (float16) or 2^-8 (bfloat16) of the largest value.
    const double bound = compression == GradientCompression::kFloat16 ? 1e-3 : 8e-3;
    run_ranks(2, [&](ProcessGroups& groups) {
      const int rank = groups.world()->rank();
      Network network(rank);
      DataParallelOptions options;
      options.gradient_compression = compression;
      DataParallel parallel(network, groups.world(), options);
      backward_of_part(parallel, network, rank, 2);
      EXPECT_EQ(network.first.grad().scalar_type(), torch::kFloat64);
      EXPECT_LE(difference(network.first.grad(), expected[0]), bound);
      EXPECT_GT(difference(network.first.grad(), expected[0]), 1e-8);
    });
  }
}

TEST(DataParallel, UnusedParametersAreNamed) {
  run_ranks(2, [](ProcessGroups& groups) {
    Network network(groups.world()->rank());
    DataParallel parallel(network, groups.world(), {});
    parallel.before_forward(true, true);
    const auto outputs = network.forward(samples(0, 2), /*with_second=*/false);
    EXPECT_THAT([&] { parallel.backward(outputs.sum(), true); },
                ThrowsMessage<Error>(HasSubstr("the loss does not depend on the parameters second; set "
                                               "distributed.find_unused_parameters: true")));
  });
}

TEST(DataParallel, UnusedParametersAreAllowedOnRequest) {
  run_ranks(2, [](ProcessGroups& groups) {
    Network network(groups.world()->rank());
    DataParallelOptions options;
    options.find_unused_parameters = true;
    DataParallel parallel(network, groups.world(), options);
    Network single(0);
    single.forward(samples(0, 2), /*with_second=*/false).sum().backward();
    for (int step = 0; step < 2; ++step) {
      network.zero_grad();
      parallel.before_forward(true, true);
      const auto outputs = network.forward(samples(0, 2), /*with_second=*/false);
      parallel.backward(outputs.sum(), true);
      ASSERT_TRUE(network.first.grad().defined());
      EXPECT_LE(difference(network.first.grad(), 2 * single.first.grad()), 1e-15) << "the sum of two ranks with the same samples";
      const auto& unused = network.second.grad();
      EXPECT_TRUE(!unused.defined() || unused.eq(0).all().item<bool>());
    }
  });
}

TEST(DataParallel, ParametersThatAreFrozenLaterAreNamed) {
  run_ranks(2, [](ProcessGroups& groups) {
    Network network(groups.world()->rank());
    DataParallel parallel(network, groups.world(), {});
    network.second.set_requires_grad(false);
    EXPECT_THAT([&] { parallel.before_forward(true, true); }, ThrowsMessage<Error>(HasSubstr("the parameter second was frozen after")));
  });
}

// The error of rank 0 when rank 1 does not take part in a step.
std::string error_of_a_lost_rank(GradientExchange exchange) {
  std::string message;
  const auto lose_a_rank = [&] {
    run_ranks(2, [&](ProcessGroups& groups) {
      Network network(0);
      DataParallel parallel(network, groups.world(), {}, /*averages=*/false, exchange);
      if (groups.world()->rank() == 1) throw std::runtime_error("this rank is lost");
      parallel.before_forward(false, true);
      const auto outputs = network.forward(samples(0, 2));
      try {
        parallel.backward(outputs.sum(), true);
      } catch (const PeerError& error) {
        message = error.what();
      }
      throw std::runtime_error("and this one ends too");
    });
  };
  EXPECT_THROW(lose_a_rank(), std::runtime_error);
  return message;
}

TEST(DataParallel, ARankLostDuringBackwardIsAPeerError) {
  EXPECT_THAT(error_of_a_lost_rank(GradientExchange::kAllReduce), HasSubstr("rank 0: all_reduce of gradients failed"));
  for (const auto exchange : {GradientExchange::kSharedMemory, GradientExchange::kAfterBackward})
    EXPECT_THAT(error_of_a_lost_rank(exchange), HasSubstr("rank 0: sum among ranks 0, 1 failed: rank 1 has left the group"));
}

TEST(DataParallel, AModelWithoutTrainedParameters) {
  run_ranks(2, [](ProcessGroups& groups) {
    Network network(groups.world()->rank());
    for (auto& parameter : network.parameters()) parameter.set_requires_grad(false);
    EXPECT_THAT([&] { DataParallel(network, groups.world(), {}); },
                ThrowsMessage<Error>(HasSubstr("the model has no trainable parameter")));
  });
}

TEST(DataParallel, OneProcessDoesNothing) {
  Network network(1);
  ProcessGroups groups(this_process());
  DataParallel parallel(network, groups.world(), {});
  backward_of_part(parallel, network, 0, 1);
  EXPECT_TRUE(network.first.equal(Network(1).first));
  EXPECT_TRUE(parallel.bucket_sizes().empty());
}

TEST(StartupBarrierOfAGroup, AnErrorOfOneRankIsThrownOnAll) {
  run_ranks(3, [](ProcessGroups& groups) {
    const auto& world = *groups.world();
    StartupBarrier barrier(groups.world());
    barrier.on_all_ranks([] {});
    for (const int failing : {0, 2}) {
      try {
        barrier.on_all_ranks([&] {
          if (world.rank() == failing) throw CheckpointError("last.pt: there is no such file");
        });
        ADD_FAILURE() << "rank " << world.rank() << " continues";
      } catch (const AgreedError& error) {
        const std::string text = failing == 0 ? "last.pt: there is no such file" : "rank 2: last.pt: there is no such file";
        EXPECT_EQ(error.what(), world.rank() == 0 ? text : "");
        EXPECT_EQ(error.exit_code(), ExitCode::kCheckpoint);
      }
    }
  });
}

TEST(StopConsensus, ThroughSharedMemoryAllStopAtTheSameCall) {
  run_ranks(3, [](ProcessGroups& groups) {
    const auto group = groups.new_group({0, 1, 2});
    group->share_memory(64);
    ASSERT_TRUE(group->shares_memory());
    StopConsensus agreement(group);
    EXPECT_FALSE(agreement.any_requested(false));
    EXPECT_TRUE(agreement.any_requested(groups.world()->rank() == 1));
    EXPECT_FALSE(agreement.any_requested(false));
  });
}

TEST(StopConsensus, AllStopOneCallLater) {
  run_ranks(3, [](ProcessGroups& groups) {
    StopConsensus agreement(groups.new_group({0, 1, 2}));
    const bool is_asked = groups.world()->rank() == 1;
    EXPECT_FALSE(agreement.any_requested(false));
    EXPECT_FALSE(agreement.any_requested(is_asked));
    EXPECT_TRUE(agreement.any_requested(false));
    EXPECT_TRUE(agreement.any_requested(false));
  });
  ProcessGroups single(this_process());
  StopConsensus agreement(single.world());
  EXPECT_FALSE(agreement.any_requested(false));
  EXPECT_TRUE(agreement.any_requested(true));
}

}  // namespace
}  // namespace trainer::distributed::test
