#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "distributed/data_parallel.h"
#include "tests/testing/ranks.h"
#include "trainer/distributed.h"
#include "trainer/error.h"
#include "trainer/torch.h"

namespace trainer::distributed::average_test {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;

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
                ThrowsMessage<UsageError>(HasSubstr("but this rank's is 0 and their sum is 0; pass each rank's number of samples")));
  });
}

TEST(DistributedDataParallel, AWeightThatCannotBeUsedIsRefusedOnAllRanks) {
  for (const double weight : {-1.0, std::nan(""), HUGE_VAL}) {
    run_ranks(2, [&](ProcessGroups& groups) {
      Network network(0);
      DistributedDataParallel parallel(network, groups.world());
      parallel.before_forward();
      EXPECT_THAT([&] { parallel.backward(network.losses(inputs(1)).sum(), groups.world()->rank() == 0 ? weight : 4); },
                  ThrowsMessage<UsageError>(HasSubstr("must be finite, not negative, and not all 0")));
    });
  }
}

TEST(DistributedDataParallel, OneProcessNeedsNoGroup) {
  Network alone(0), network(0);
  alone.losses(inputs(8)).mean().backward();
  DistributedDataParallel parallel(network, std::make_shared<ProcessGroup>());
  parallel.before_forward();
  parallel.backward(network.losses(inputs(8)).mean());
  EXPECT_EQ(largest_difference(network, alone), 0);
}

// The results of Python's DistributedDataParallel (tests/golden/make_data_parallel.py, which explains them).
nlohmann::json golden() {
  return nlohmann::json::parse(std::ifstream(std::string(TRAINER_SOURCE_DIR) + "/tests/golden/data_parallel.json"));
}

nlohmann::json values_of(const torch::Tensor& gradient) {
  if (!gradient.defined()) return nullptr;
  const auto dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
  const auto flat = (dense.is_complex() ? torch::view_as_real(dense) : dense).contiguous().view(-1);
  return std::vector<double>(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
}

void expect_near(const torch::Tensor& gradient, const nlohmann::json& expected, const std::string& what) {
  const auto values = values_of(gradient);
  const auto wanted = expected.is_null() || !expected[0].is_array() ? expected : [&] {
    auto flat = nlohmann::json::array();
    for (const auto& row : expected) flat.insert(flat.end(), row.begin(), row.end());
    return flat;
  }();
  ASSERT_EQ(values.is_null(), wanted.is_null()) << what;
  ASSERT_EQ(values.size(), wanted.size()) << what;
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i].get<double>(), wanted[i].get<double>(), 1e-12 * std::abs(wanted[i].get<double>())) << what;
}

TEST(DistributedDataParallel, UnusedParametersMayChangeBetweenStepsAsInPython) {
  const auto wanted = golden().at("unused");
  for (const double bucket_cap_mb : {25.0, 1e-5}) {
    run_ranks(2, [&](ProcessGroups& groups) {
      const int rank = groups.world()->rank();
      torch::nn::Module branches;
      std::map<std::string, torch::Tensor> parameters;
      for (const auto& [name, values] : wanted.at("start").items())
        parameters[name] = branches.register_parameter(name, torch::tensor(values.get<std::vector<double>>(), torch::kFloat64));
      DistributedDataParallel parallel(branches, groups.world(), {.bucket_cap_mb = bucket_cap_mb, .find_unused_parameters = true});
      for (size_t step = 0; step < wanted.at("used").size(); ++step) {
        if (wanted.at("resets")[step].get<bool>()) branches.zero_grad();
        parallel.before_forward();
        const auto x = torch::tensor({1., 2., 3.}, torch::kFloat64) * (1 + rank + static_cast<int>(step));
        auto loss = torch::zeros({}, torch::kFloat64);
        for (const char name : wanted.at("used")[step][static_cast<size_t>(rank)].get<std::string>())
          loss = loss + (parameters.at(std::string(1, name)) * x).square().sum();
        parallel.backward(loss);
        for (const auto& [name, expected] : wanted.at("gradients")[step].items())
          expect_near(parameters.at(name).grad(), expected, fmt::format("step {}, {}", step, name));
      }
    });
  }
}

TEST(DistributedDataParallel, SparseAndComplexGradientsAsInPython) {
  const auto wanted = golden().at("kinds");
  run_ranks(2, [&](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    torch::nn::Module module;
    torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(5, 2).sparse(true)._weight(torch::ones({5, 2}, torch::kFloat64)));
    module.register_module("embedding", embedding);
    const auto complex = module.register_parameter(
        "complex", torch::complex(torch::tensor({1., 3.}, torch::kFloat64), torch::tensor({2., -1.}, torch::kFloat64)));
    DistributedDataParallel parallel(module, groups.world());
    for (int64_t step = 0; step < 3; ++step) {
      module.zero_grad();
      parallel.before_forward();
      const auto rows = torch::tensor(std::vector<int64_t>{0, rank + 1, rank + 1 + step});
      parallel.backward((embedding(rows).sum() * (1 + rank)).square() + (complex * (1 + rank)).abs().square().sum());
      const auto& expected = wanted[static_cast<size_t>(step)];
      EXPECT_TRUE(embedding->weight.grad().is_sparse());
      expect_near(embedding->weight.grad(), expected.at("embedding"), fmt::format("step {}, embedding", step));
      expect_near(complex.grad(), expected.at("complex"), fmt::format("step {}, complex", step));
    }
  });
}

// Complex gradients are also summed in shared memory, and a parameter that two layers share is exchanged once.
TEST(DistributedDataParallel, ComplexAndSharedParametersInSharedMemory) {
  run_ranks(2, [](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    torch::nn::Module module;
    const auto weight = module.register_parameter("weight", torch::full({3}, c10::complex<double>(1, 2), torch::kComplexDouble));
    module.register_parameter("same", weight);
    for (const auto exchange : {GradientExchange::kSharedMemory, GradientExchange::kAfterBackward, GradientExchange::kAllReduce}) {
      DataParallel parallel(module, groups.world(), {}, /*averages=*/true, exchange);
      module.zero_grad();
      parallel.before_forward(true, true);
      parallel.backward((weight * (1 + rank)).abs().square().sum(), true);
      // d|w r|²/dw = 2 w r², with the mean (1 + 4) / 2 of r².
      EXPECT_TRUE(weight.grad().equal(torch::full({3}, c10::complex<double>(5, 10), torch::kComplexDouble)));
    }
  });
}

TEST(DistributedDataParallel, LossBackwardIsNoticed) {
  run_ranks(2, [](ProcessGroups& groups) {
    Network network(0);
    {
      DistributedDataParallel parallel(network, groups.world());
      const auto loss = [&] {
        parallel.before_forward();
        return network.losses(inputs(2)).mean();
      };
      {
        const auto no_sync = parallel.no_sync();
        loss().backward();
      }
      parallel.backward(loss());
      // A forward pass without a backward pass, and gradients that are not kept, are not mistakes.
      loss();
      torch::autograd::grad({loss()}, network.parameters());
      loss().backward();
      EXPECT_THAT([&] { parallel.before_forward(); }, ThrowsMessage<std::logic_error>(HasSubstr("call parallel.backward(loss)")));
    }
    network.losses(inputs(2)).mean().backward();
  });
}

TEST(DistributedDataParallel, WhatCannotBeUsedIsRefused) {
  Network network(0);
  EXPECT_THAT([&] { DistributedDataParallel(network, nullptr); },
              ThrowsMessage<UsageError>(HasSubstr("the process group is null, which new_group() returns on ranks that are not members")));
  run_ranks(2, [](ProcessGroups& groups) {
    Network own(0);
    if (const auto first = groups.new_group({0}); groups.world()->rank() == 0) DistributedDataParallel(own, first);
    for (const double size : {0.0, -1.0, std::nan("")}) {
      EXPECT_THAT([&] { DistributedDataParallel(own, groups.world(), {.bucket_cap_mb = size}); },
                  ThrowsMessage<OptionError>(HasSubstr("it must be greater than 0")));
    }
    const DistributedDataParallel parallel(own, groups.world());
    EXPECT_THAT([&] { DistributedDataParallel(own, groups.world()); },
                ThrowsMessage<std::logic_error>(HasSubstr("another DistributedDataParallel uses this process group")));
  });
}

TEST(ProcessGroup, IsNotUsedAfterShutdown) {
  const auto refused = ThrowsMessage<std::logic_error>(HasSubstr("the process groups were shut down"));
  const auto expect_refused = [&](ProcessGroups& groups) {
    const auto world = groups.world();
    Network network(0);
    DistributedDataParallel parallel(network, world);
    groups.shutdown();
    EXPECT_THAT([&] { world->barrier(); }, refused);
    EXPECT_THAT([&] { world->all_gather(torch::ones({1})); }, refused);
    EXPECT_THAT([&] { parallel.before_forward(); }, refused);
    EXPECT_THAT([&] { groups.new_group({0}); }, refused);
  };
  run_ranks(2, expect_refused);
  ProcessGroups alone(this_process());
  expect_refused(alone);
}

TEST(ProcessGroup, TensorsThatCannotBeExchangedAreNotTheFaultOfAPeer) {
  run_ranks(2, [](ProcessGroups& groups) {
    const auto& world = *groups.world();
    const auto with_gaps = torch::ones({4, 4}).narrow(1, 0, 2);
    EXPECT_THAT([&] { world.all_reduce(with_gaps); }, ThrowsMessage<c10::Error>(HasSubstr("all_reduce needs a tensor without gaps")));
    EXPECT_THAT([&] { world.broadcast(with_gaps); }, ThrowsMessage<c10::Error>(HasSubstr("broadcast needs a tensor without gaps")));
    EXPECT_THROW(world.broadcast(torch::ones({2}), 5), c10::Error);
  });
}

}  // namespace
}  // namespace trainer::distributed::average_test
