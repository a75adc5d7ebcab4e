#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tests/testing/ranks.h"
#include "trainer/distributed.h"
#include "trainer/error.h"
#include "trainer/torch.h"

namespace trainer::distributed::average_test {
namespace {

using testing::run_ranks;

torch::Tensor inputs(int64_t count) { return torch::arange(count * 3, torch::kFloat64).view({count, 3}).mul(0.37).sin(); }

// A linear layer whose parameters differ between ranks until DistributedDataParallel copies those of rank 0.
struct Network : torch::nn::Module {
  explicit Network(int rank) : fc(register_module("fc", torch::nn::Linear(3, 2))) {
    to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(0.1 * (rank + 1));
  }
  // The loss of each sample.
  torch::Tensor losses(const torch::Tensor& x) { return torch::tanh(fc(x)).square().sum(1); }
  torch::nn::Linear fc;
};

double largest_difference(Network& a, Network& b) {
  double largest = 0;
  const auto ours = a.parameters(), theirs = b.parameters();
  for (size_t i = 0; i < ours.size(); ++i) largest = std::max(largest, (ours[i].grad() - theirs[i].grad()).abs().max().item<double>());
  return largest;
}

TEST(DistributedDataParallel, AveragesOverTheRanks) {
  Network alone(0);
  alone.losses(inputs(8)).mean().backward();
  run_ranks(2, [&](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    Network network(rank);
    DistributedDataParallel parallel(network, groups.world());
    torch::optim::SGD optimizer(network.parameters(), 0.1);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      parallel.before_forward();
      parallel.backward(network.losses(inputs(8).narrow(0, 4 * rank, 4)).mean());
    }
    EXPECT_LE(largest_difference(network, alone), 1e-15);
  });
}

TEST(DistributedDataParallel, WeightsMakeTheMeanOverAllSamples) {
  Network alone(0);
  alone.losses(inputs(8)).mean().backward();
  const std::vector<int64_t> firsts = {0, 5, 8}, sizes = {5, 3, 0};
  run_ranks(3, [&](ProcessGroups& groups) {
    const auto rank = static_cast<size_t>(groups.world()->rank());
    Network network(static_cast<int>(rank));
    DistributedDataParallel parallel(network, groups.world());
    parallel.before_forward();
    const auto losses = network.losses(inputs(8).narrow(0, firsts[rank], sizes[rank]));
    parallel.backward(sizes[rank] > 0 ? losses.mean() : losses.sum(), static_cast<double>(sizes[rank]));
    EXPECT_LE(largest_difference(network, alone), 1e-15);
  });
}

TEST(DistributedDataParallel, NoSyncAccumulatesUntilTheNextBackward) {
  Network alone(0);
  alone.losses(inputs(8)).mean().backward();
  run_ranks(2, [&](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    Network network(rank);
    DistributedDataParallel parallel(network, groups.world());
    const auto micro_step = [&](int64_t first) {
      parallel.before_forward();
      parallel.backward(network.losses(inputs(8).narrow(0, first, 2)).mean() / 2);
    };
    {
      const auto no_sync = parallel.no_sync();
      micro_step(4 * rank);
    }
    micro_step(4 * rank + 2);
    EXPECT_LE(largest_difference(network, alone), 1e-15);
  });
}

TEST(DistributedDataParallel, AddsToTheGradientsThatAreThere) {
  Network alone(0);
  for (int pass = 0; pass < 2; ++pass) alone.losses(inputs(8)).mean().backward();
  run_ranks(2, [&](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    Network network(rank);
    DistributedDataParallel parallel(network, groups.world());
    for (int pass = 0; pass < 2; ++pass) {
      parallel.before_forward();
      const auto loss = network.losses(inputs(8).narrow(0, 4 * rank, 4)).mean();
      if (pass == 0) parallel.backward(loss);
      if (pass == 1) parallel.backward(loss, 4);
    }
    EXPECT_LE(largest_difference(network, alone), 1e-15);
  });
}

TEST(DistributedDataParallel, RefusesWeightsThatAreAllZero) {
  run_ranks(2, [](ProcessGroups& groups) {
    Network network(0);
    DistributedDataParallel parallel(network, groups.world());
    parallel.before_forward();
    EXPECT_THAT([&] { parallel.backward(network.losses(inputs(1)).sum(), 0); },
                ::testing::ThrowsMessage<Error>(::testing::HasSubstr("the weights of all ranks add up to 0")));
  });
}

TEST(DistributedDataParallel, OneProcessNeedsNoGroup) {
  Network alone(0), network(0);
  alone.losses(inputs(8)).mean().backward();
  DistributedDataParallel parallel(network, std::make_shared<ProcessGroup>());
  parallel.before_forward();
  parallel.backward(network.losses(inputs(8)).mean());
  EXPECT_EQ(largest_difference(network, alone), 0);
}

}  // namespace
}  // namespace trainer::distributed::average_test
