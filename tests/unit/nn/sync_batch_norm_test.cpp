#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "nn/batch_norm.h"
#include "tests/testing/ranks.h"
#include "trainer/error.h"

namespace trainer::nn::test {
namespace {

using distributed::ProcessGroups;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;

constexpr int64_t kChannels = 6;
constexpr double kEps = 1e-5;

// The number of samples of each rank.
using Shards = std::vector<int64_t>;

int64_t total(const Shards& shards) { return std::accumulate(shards.begin(), shards.end(), int64_t{0}); }

torch::Tensor shard_of(const torch::Tensor& joined, const Shards& shards, int rank) {
  return joined.narrow(0, std::accumulate(shards.begin(), shards.begin() + rank, int64_t{0}), shards[static_cast<size_t>(rank)]);
}

torch::Tensor random_values(int64_t samples, uint64_t seed) {
  return at::randn({samples, kChannels, 3, 5}, at::detail::createCPUGenerator(seed), torch::kFloat64).mul_(2.0).add_(0.7);
}

// Results of a rank after its steps.
struct Outcome {
  std::vector<torch::Tensor> outputs, input_gradients;
  torch::Tensor weight_gradient, bias_gradient, running_mean, running_var;
  int64_t batches = 0;
};

struct Steps {
  Shards shards;
  torch::MemoryFormat format = torch::MemoryFormat::Contiguous;
  torch::Dtype input_dtype = torch::kFloat64;
  torch::Dtype weight_dtype = torch::kFloat64;
  std::optional<double> momentum = 0.1;
  std::vector<torch::Tensor> inputs, gradients;  // of the joined batch, float64, one pair per step
};

Steps make_steps(Shards shards, int num_steps = 1) {
  Steps steps;
  steps.shards = std::move(shards);
  for (int i = 0; i < num_steps; ++i) {
    steps.inputs.push_back(random_values(total(steps.shards), 2 * static_cast<uint64_t>(i)));
    steps.gradients.push_back(random_values(total(steps.shards), 2 * static_cast<uint64_t>(i) + 1));
  }
  return steps;
}

// Forward and backward over all steps, then a forward in eval mode, with `slice` of each joined batch.
Outcome take_steps(BatchNorm2d& norm, const Steps& steps, const std::function<torch::Tensor(const torch::Tensor&)>& slice) {
  {
    const torch::NoGradGuard no_grad;
    norm.weight.copy_(at::linspace(0.5, 2.0, kChannels));
    norm.bias.copy_(at::linspace(-1.0, 1.0, kChannels));
  }
  norm.to(steps.weight_dtype);
  const auto part = [&](const torch::Tensor& joined) {
    return slice(joined).to(steps.input_dtype, /*non_blocking=*/false, /*copy=*/true, steps.format);
  };
  Outcome outcome;
  for (size_t i = 0; i < steps.inputs.size(); ++i) {
    const torch::Tensor x = part(steps.inputs[i]).requires_grad_();
    const torch::Tensor y = norm.forward(x);
    y.backward(part(steps.gradients[i]));
    EXPECT_TRUE(y.is_contiguous(steps.format));
    EXPECT_TRUE(x.grad().is_contiguous(steps.format));
    EXPECT_EQ(y.scalar_type(), steps.input_dtype);
    outcome.outputs.push_back(y.detach());
    outcome.input_gradients.push_back(x.grad());
  }
  norm.eval();
  outcome.outputs.push_back(norm.forward(part(steps.inputs[0])).detach());
  outcome.weight_gradient = norm.weight.grad();
  outcome.bias_gradient = norm.bias.grad();
  outcome.running_mean = norm.running_mean;
  outcome.running_var = norm.running_var;
  outcome.batches = norm.num_batches_tracked.item<int64_t>();
  return outcome;
}

std::vector<Outcome> synchronised(const Steps& steps) {
  const auto num_ranks = static_cast<int>(steps.shards.size());
  std::vector<Outcome> outcomes(steps.shards.size());
  run_ranks(num_ranks, [&](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    BatchNorm2d norm(kChannels, {.eps = kEps, .momentum = steps.momentum}, groups.world());
    outcomes[static_cast<size_t>(rank)] =
        take_steps(norm, steps, [&](const torch::Tensor& joined) { return shard_of(joined, steps.shards, rank); });
  });
  return outcomes;
}

// The outcome of BatchNorm2d on the joined batches, in float64.
Outcome joined(Steps steps) {
  steps.input_dtype = torch::kFloat64;
  steps.weight_dtype = torch::kFloat64;
  BatchNorm2d norm(kChannels, {.eps = kEps, .momentum = steps.momentum});
  return take_steps(norm, steps, [](const torch::Tensor& batch) { return batch; });
}

void expect_near(const torch::Tensor& actual, const torch::Tensor& expected, double tolerance, const char* what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const auto difference = (actual.to(torch::kFloat64) - expected).abs().max().item<double>();
  EXPECT_LE(difference, tolerance * expected.abs().max().item<double>()) << what;
}

torch::Tensor gather(const std::vector<Outcome>& outcomes, const std::function<torch::Tensor(const Outcome&)>& member) {
  std::vector<torch::Tensor> tensors;
  for (const Outcome& outcome : outcomes) tensors.push_back(member(outcome));
  return at::cat(tensors);
}

torch::Tensor sum(const std::vector<Outcome>& outcomes, torch::Tensor Outcome::*member) {
  torch::Tensor result = torch::zeros({kChannels}, torch::kFloat64);
  for (const Outcome& outcome : outcomes) result += outcome.*member;
  return result;
}

void expect_like_joined(const std::vector<Outcome>& ranks, const Outcome& expected, double tolerance) {
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    expect_near(gather(ranks, [i](const Outcome& rank) { return rank.outputs[i]; }), expected.outputs[i], tolerance, "output");
  }
  for (size_t i = 0; i < expected.input_gradients.size(); ++i) {
    const auto gradient = gather(ranks, [i](const Outcome& rank) { return rank.input_gradients[i]; });
    expect_near(gradient, expected.input_gradients[i], tolerance, "gradient of the input");
  }
  expect_near(sum(ranks, &Outcome::weight_gradient), expected.weight_gradient, tolerance, "gradient of the weight");
  expect_near(sum(ranks, &Outcome::bias_gradient), expected.bias_gradient, tolerance, "gradient of the bias");
  for (const Outcome& rank : ranks) {
    expect_near(rank.running_mean, expected.running_mean, tolerance, "running mean");
    expect_near(rank.running_var, expected.running_var, tolerance, "running variance");
    EXPECT_TRUE(rank.running_mean.equal(ranks[0].running_mean));
    EXPECT_TRUE(rank.running_var.equal(ranks[0].running_var));
    EXPECT_EQ(rank.batches, expected.batches);
  }
}

// The tolerance allows another order of summation, and digits that are lost when terms cancel.
constexpr double kFloat64Tolerance = 1e-14;
// Values are rounded in a few places, by up to 6e-8 each.
constexpr double kFloat32Tolerance = 5e-7;
// Half a unit in the last of bfloat16's 8 binary digits, because outputs are rounded once.
constexpr double kBfloat16Tolerance = 1.0 / 256;

class SyncBatchNormAgainstJoined : public ::testing::TestWithParam<std::tuple<Shards, torch::MemoryFormat>> {
 protected:
  Steps make() const {
    Steps steps = make_steps(std::get<Shards>(GetParam()), 3);
    steps.format = std::get<torch::MemoryFormat>(GetParam());
    return steps;
  }
};

TEST_P(SyncBatchNormAgainstJoined, InFloat64) {
  const Steps steps = make();
  expect_like_joined(synchronised(steps), joined(steps), kFloat64Tolerance);
}

TEST_P(SyncBatchNormAgainstJoined, InFloat32) {
  Steps steps = make();
  steps.input_dtype = steps.weight_dtype = torch::kFloat32;
  expect_like_joined(synchronised(steps), joined(steps), kFloat32Tolerance);
}

INSTANTIATE_TEST_SUITE_P(ShardsAndFormats, SyncBatchNormAgainstJoined,
                         ::testing::Combine(::testing::Values(Shards{4}, Shards{4, 4}, Shards{5, 2}, Shards{0, 4}, Shards{4, 0},
                                                              Shards{3, 1, 2}, Shards{0, 0, 3}, Shards{2, 0, 1, 4}),
                                            ::testing::Values(torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast)));

TEST(SyncBatchNorm, GroupOfOneIsLocal) {
  Steps steps = make_steps({4}, 2);
  steps.input_dtype = steps.weight_dtype = torch::kFloat32;
  const Outcome alone = synchronised(steps)[0];
  BatchNorm2d norm(kChannels);
  const Outcome local = take_steps(norm, steps, [](const torch::Tensor& batch) { return batch; });
  EXPECT_TRUE(alone.outputs[1].equal(local.outputs[1]));
  EXPECT_TRUE(alone.input_gradients[1].equal(local.input_gradients[1]));
  EXPECT_TRUE(alone.running_var.equal(local.running_var));
}

TEST(SyncBatchNorm, WithoutMomentumAveragesAllBatches) {
  Steps steps = make_steps({1, 3}, 3);
  steps.momentum.reset();
  const auto ranks = synchronised(steps);
  expect_like_joined(ranks, joined(steps), kFloat64Tolerance);
  torch::Tensor mean = torch::zeros({kChannels}, torch::kFloat64);
  for (const auto& input : steps.inputs) mean += input.mean({0, 2, 3}) / 3.0;
  expect_near(ranks[0].running_mean, mean, kFloat64Tolerance, "running mean");
}

TEST(SyncBatchNorm, AcceptsBfloat16UnderAutocast) {
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
    Steps steps = make_steps({3, 0, 2});
    for (auto* tensors : {&steps.inputs, &steps.gradients}) {
      for (auto& tensor : *tensors) tensor = tensor.to(torch::kBFloat16).to(torch::kFloat64);
    }
    steps.format = format;
    const Outcome expected = joined(steps);
    steps.input_dtype = torch::kBFloat16;
    steps.weight_dtype = torch::kFloat32;
    std::vector<Outcome> ranks(steps.shards.size());
    run_ranks(3, [&](ProcessGroups& groups) {
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      at::autocast::set_autocast_enabled(at::kCPU, true);
      const int rank = groups.world()->rank();
      BatchNorm2d norm(kChannels, {}, groups.world());
      ranks[static_cast<size_t>(rank)] =
          take_steps(norm, steps, [&](const torch::Tensor& joined) { return shard_of(joined, steps.shards, rank); });
      EXPECT_EQ(norm.weight.grad().scalar_type(), torch::kFloat32);
      EXPECT_EQ(norm.running_mean.scalar_type(), torch::kFloat32);
    });
    expect_like_joined(ranks, expected, kBfloat16Tolerance);
    // These are sums of values that were not rounded to bfloat16.
    expect_near(ranks[1].running_var, expected.running_var, kFloat32Tolerance, "running variance");
    expect_near(sum(ranks, &Outcome::weight_gradient), expected.weight_gradient, kFloat32Tolerance, "gradient of the weight");
  }
}

// E[x²] − E[x]² would not have a single correct digit. In float32, the kernels are those of BatchNorm2d, and so are their errors.
TEST(SyncBatchNorm, SmallDeviationsFromALargeMean) {
  Steps steps = make_steps({2, 3, 1});
  // The same values around 1e4 and around 0, which float32 can represent. Merging the ranks' means is the difficult part.
  const torch::Tensor deviations = (random_values(6, 5) * 1e-2).add_(1e4).to(torch::kFloat32).to(torch::kFloat64).sub_(1e4);
  Steps centered = steps;
  centered.inputs = {deviations};
  const Outcome expected = joined(centered);
  steps.inputs = {deviations + 1e4};

  const auto ranks = synchronised(steps);
  // The last digit of the mean is 1e4 · 1e-16, relative to deviations of 2e-2, in sums of a few dozen values.
  const double tolerance = 1e-9;
  const auto outputs = [](const std::vector<Outcome>& outcomes) { return gather(outcomes, [](const Outcome& o) { return o.outputs[0]; }); };
  const auto input_gradients = [](const std::vector<Outcome>& outcomes) {
    return gather(outcomes, [](const Outcome& outcome) { return outcome.input_gradients[0]; });
  };
  expect_near(outputs(ranks), expected.outputs[0], tolerance, "output");
  expect_near(input_gradients(ranks), expected.input_gradients[0], tolerance, "gradient of the input");
  expect_near(ranks[0].running_var - 0.9, expected.running_var - 0.9, tolerance, "running variance");
  expect_near(sum(ranks, &Outcome::weight_gradient), expected.weight_gradient, tolerance, "gradient of the weight");

  steps.input_dtype = steps.weight_dtype = torch::kFloat32;
  BatchNorm2d norm(kChannels, {.eps = kEps, .momentum = steps.momentum});
  const std::vector<Outcome> one{take_steps(norm, steps, [](const torch::Tensor& batch) { return batch; })};
  const auto several = synchronised(steps);
  const auto expect_no_worse = [](const torch::Tensor& actual, const torch::Tensor& by_one, const torch::Tensor& exact, const char* what) {
    const auto error = [&](const torch::Tensor& values) { return (values.to(torch::kFloat64) - exact).abs().max().item<double>(); };
    EXPECT_LE(error(actual), 2 * error(by_one)) << what;
  };
  expect_no_worse(outputs(several), outputs(one), expected.outputs[0], "output");
  expect_no_worse(input_gradients(several), input_gradients(one), expected.input_gradients[0], "gradient of the input");
  expect_no_worse(sum(several, &Outcome::weight_gradient), one[0].weight_gradient, expected.weight_gradient, "gradient of the weight");
}

// Records the names of c10d's operators that run in this thread.
class CollectiveCounter {
 public:
  CollectiveCounter()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                             const std::string_view name = function.name();
                                             if (name.starts_with("c10d::")) names().emplace_back(name);
                                             return std::unique_ptr<at::ObserverContext>();
                                           }).scopes({at::RecordScope::FUNCTION}))) {}
  ~CollectiveCounter() { at::removeCallback(handle_); }
  CollectiveCounter(const CollectiveCounter&) = delete;
  CollectiveCounter& operator=(const CollectiveCounter&) = delete;

  static std::vector<std::string> take() { return std::exchange(names(), {}); }

 private:
  static std::vector<std::string>& names() {
    thread_local std::vector<std::string> instance;
    return instance;
  }
  at::CallbackHandle handle_;
};

TEST(SyncBatchNorm, OneCollectiveForwardAndOneBackward) {
  run_ranks(2, [](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    BatchNorm2d norm(kChannels, {}, groups.world());
    const torch::Tensor x = random_values(3 * rank, 1).to(torch::kFloat32);
    const CollectiveCounter counter;
    using Names = std::vector<std::string>;

    const torch::Tensor y = norm.forward(x.clone().requires_grad_());
    EXPECT_EQ(CollectiveCounter::take(), Names{"c10d::allgather_"});
    y.sum().backward();
    EXPECT_EQ(CollectiveCounter::take(), Names{"c10d::allgather_"});

    // The input of a first layer needs no gradient.
    norm.forward(x).square().sum().backward();
    EXPECT_EQ(CollectiveCounter::take(), Names{"c10d::allgather_"});
    EXPECT_TRUE(norm.weight.grad().ne(0).all().item<bool>() == (rank == 1));

    {
      const torch::NoGradGuard no_grad;
      norm.forward(x);
      EXPECT_EQ(CollectiveCounter::take(), Names{"c10d::allgather_"});
    }
    norm.eval();
    norm.forward(x);
    EXPECT_EQ(CollectiveCounter::take(), Names{});
  });
}

TEST(SyncBatchNorm, FrozenParametersGetNoGradient) {
  run_ranks(2, [](ProcessGroups& groups) {
    BatchNorm2d norm(kChannels, {}, groups.world());
    norm.weight.requires_grad_(false);
    const torch::Tensor x = random_values(2, 1).to(torch::kFloat32).requires_grad_();
    norm.forward(x).square().sum().backward();
    EXPECT_FALSE(norm.weight.grad().defined());
    EXPECT_TRUE(norm.bias.grad().defined());
    EXPECT_TRUE(x.grad().defined());
  });
}

TEST(SyncBatchNorm, EmptyPartHasZeroGradients) {
  run_ranks(2, [](ProcessGroups& groups) {
    const bool is_empty = groups.world()->rank() == 0;
    BatchNorm2d norm(kChannels, {}, groups.world());
    const torch::Tensor x = random_values(is_empty ? 0 : 2, 1).to(torch::kFloat32).requires_grad_();
    norm.forward(x).square().sum().backward();
    EXPECT_EQ(x.grad().sizes(), x.sizes());
    EXPECT_EQ(norm.weight.grad().equal(torch::zeros({kChannels})), is_empty);
    EXPECT_EQ(norm.bias.grad().equal(torch::zeros({kChannels})), is_empty);
    EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
  });
}

TEST(SyncBatchNorm, AcceptsStridedInputsAndGradients) {
  Steps steps = make_steps({2, 2});
  const Outcome expected = joined(steps);
  std::vector<torch::Tensor> outputs(2), gradients(2);
  run_ranks(2, [&](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    BatchNorm2d norm(kChannels, {.eps = kEps}, groups.world());
    norm.to(torch::kFloat64);
    {
      const torch::NoGradGuard no_grad;
      norm.weight.copy_(at::linspace(0.5, 2.0, kChannels));
      norm.bias.copy_(at::linspace(-1.0, 1.0, kChannels));
    }
    const auto strided = [&](const torch::Tensor& joined) {
      const torch::Tensor part = shard_of(joined, steps.shards, rank);
      return at::cat({part, part}, 3).narrow(3, 2, 5).roll(2, 3).transpose(2, 3).contiguous().transpose(2, 3);
    };
    const torch::Tensor x = strided(steps.inputs[0]).requires_grad_();
    ASSERT_FALSE(x.is_contiguous());
    const torch::Tensor y = norm.forward(x);
    y.backward(strided(steps.gradients[0]));
    outputs[static_cast<size_t>(rank)] = y.detach();
    gradients[static_cast<size_t>(rank)] = x.grad();
  });
  expect_near(at::cat(outputs), expected.outputs[0], kFloat64Tolerance, "output");
  expect_near(at::cat(gradients), expected.input_gradients[0], kFloat64Tolerance, "gradient of the input");
}

TEST(SyncBatchNorm, TwoValuesPerChannelOverAllRanksSufficeAndOneIsRefusedByAllRanks) {
  run_ranks(2, [](ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    const auto norm = batch_norms(groups.world())(kChannels);
    norm->forward(torch::ones({1, kChannels, 1, 1}));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
    const torch::Tensor mean = norm->running_mean.clone();
    EXPECT_THAT(
        [&] {
          norm->forward(torch::ones({rank, kChannels, 1, 1}));
        },
        ThrowsMessage<UsageError>(AllOf(HasSubstr("fewer than two values per channel over all 2 ranks"),
                                        HasSubstr(rank == 0 ? "[0, 6, 1, 1]" : "[1, 6, 1, 1]"),
                                        HasSubstr("larger dataloader.batch_size"))));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
    EXPECT_TRUE(norm->running_mean.equal(mean));
  });
}

// If the layers were not frozen, a rank that trains alone would wait for the others in a collective.
TEST(SyncBatchNorm, FrozenStatisticsNeedNoOtherRank) {
  for (const bool is_fused : {false, true}) {
    run_ranks(2, [&](ProcessGroups& groups) {
      if (groups.world()->rank() == 1) return;
      BatchNorm2d norm(8, {}, groups.world());
      if (is_fused) norm.use_fused_operator();
      norm.freeze_statistics();
      norm.train();
      for (const int64_t num_samples : {3, 0}) {
        const auto x = torch::ones({num_samples, 8, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
        const auto y = norm.forward_relu(x);
        y.sum().backward();
        EXPECT_EQ(y.sizes(), x.sizes());
        EXPECT_EQ(x.grad().sizes(), x.sizes());
      }
      EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 0);
      EXPECT_TRUE(at::equal(norm.running_mean, torch::zeros({8})));
    });
  }
}

}  // namespace
}  // namespace trainer::nn::test
