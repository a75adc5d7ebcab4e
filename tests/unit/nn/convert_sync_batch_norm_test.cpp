#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/ranks.h"
#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::nn::convert_test {
namespace {

using distributed::ProcessGroups;
using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;

constexpr int64_t kChannels = 4;

// A network that holds its layers in members, as LibTorch's networks do.
template <class Norm>
struct Network : torch::nn::Module {
  explicit Network(const torch::nn::BatchNormOptions& options) : norm(register_module("norm", Norm(options))) { to(torch::kFloat64); }
  torch::Tensor forward(const torch::Tensor& x) { return norm(x); }
  Norm norm;
};

struct Outcome {
  torch::Tensor outputs, input_gradient, weight_gradient, running_mean, running_var, evaluated;
};

// Two steps and an evaluation.
template <class Norm>
Outcome take_steps(Network<Norm>& network, const torch::Tensor& batch, const torch::Tensor& gradient) {
  Outcome outcome;
  for (int step = 0; step < 2; ++step) {
    const auto x = (batch + step).requires_grad_();
    outcome.outputs = network.forward(x);
    outcome.outputs.backward(gradient);
    outcome.input_gradient = x.grad();
  }
  network.eval();
  outcome.evaluated = network.forward(batch).detach();
  const auto& norm = *network.norm;
  if (norm.weight.defined()) outcome.weight_gradient = norm.weight.grad();
  outcome.running_mean = norm.running_mean;
  outcome.running_var = norm.running_var;
  return outcome;
}

void expect_near(const torch::Tensor& actual, const torch::Tensor& expected, const char* what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  // The tolerance allows another order of summation, and digits that are lost when terms cancel.
  if (!expected.defined()) return;
  EXPECT_LE((actual - expected).abs().max().item<double>(), 1e-13 * expected.abs().max().item<double>()) << what;
}

template <class Norm>
void expect_like_the_joined_batch(std::vector<int64_t> shape, const torch::nn::BatchNormOptions& options) {
  const auto generator = at::detail::createCPUGenerator(3);
  const auto batch = at::randn(shape, generator, torch::kFloat64) * 2 + 0.5;
  const auto gradient = at::randn(shape, generator, torch::kFloat64);
  Network<Norm> alone(options);
  const auto expected = take_steps(alone, batch, gradient);
  const std::vector<int64_t> sizes = {5, 0, shape[0] - 5};
  const std::vector<int64_t> firsts = {0, 5, 5};
  std::vector<Outcome> outcomes(3);
  run_ranks(3, [&](ProcessGroups& groups) {
    const auto rank = static_cast<size_t>(groups.world()->rank());
    const auto part = [&](const torch::Tensor& joined) { return joined.narrow(0, firsts[rank], sizes[rank]); };
    Network<Norm> network(options);
    convert_sync_batch_norm(network, groups.world());
    outcomes[rank] = take_steps(network, part(batch), part(gradient));
  });
  const auto joined = [&](torch::Tensor Outcome::*member) {
    return torch::cat({outcomes[0].*member, outcomes[1].*member, outcomes[2].*member});
  };
  expect_near(joined(&Outcome::outputs), expected.outputs, "outputs");
  expect_near(joined(&Outcome::input_gradient), expected.input_gradient, "gradient of the input");
  if (expected.running_mean.defined()) expect_near(joined(&Outcome::evaluated), expected.evaluated, "evaluation");
  auto weight_gradient = outcomes[0].weight_gradient;
  if (weight_gradient.defined()) weight_gradient = weight_gradient + outcomes[1].weight_gradient + outcomes[2].weight_gradient;
  expect_near(weight_gradient, expected.weight_gradient, "gradient of the weight");
  for (const auto& outcome : outcomes) {
    expect_near(outcome.running_mean, expected.running_mean, "running mean");
    expect_near(outcome.running_var, expected.running_var, "running variance");
  }
}

TEST(ConvertSyncBatchNorm, LayersOfEachDimensionEqualTheJoinedBatch) {
  const torch::nn::BatchNormOptions usual(kChannels);
  expect_like_the_joined_batch<torch::nn::BatchNorm1d>({12, kChannels}, usual);
  expect_like_the_joined_batch<torch::nn::BatchNorm1d>({12, kChannels, 3}, usual);
  expect_like_the_joined_batch<torch::nn::BatchNorm2d>({12, kChannels, 3, 5}, usual);
  expect_like_the_joined_batch<torch::nn::BatchNorm3d>({12, kChannels, 2, 3, 2}, usual);
}

TEST(ConvertSyncBatchNorm, LayersWithOtherOptionsEqualTheJoinedBatch) {
  const auto options = [] { return torch::nn::BatchNormOptions(kChannels); };
  expect_like_the_joined_batch<torch::nn::BatchNorm2d>({12, kChannels, 3, 5}, options().affine(false));
  expect_like_the_joined_batch<torch::nn::BatchNorm2d>({12, kChannels, 3, 5}, options().track_running_stats(false));
  expect_like_the_joined_batch<torch::nn::BatchNorm2d>({12, kChannels, 3, 5}, options().momentum(std::nullopt));
}

TEST(ConvertSyncBatchNorm, OtherNetworksNormaliseTheirOwnBatch) {
  run_ranks(2, [](ProcessGroups& groups) {
    const torch::nn::BatchNormOptions options(kChannels);
    const auto batch =
        at::randn({6, kChannels}, at::detail::createCPUGenerator(static_cast<uint64_t>(groups.world()->rank())), torch::kFloat64);
    Network<torch::nn::BatchNorm1d> converted(options), other(options);
    convert_sync_batch_norm(converted, groups.world());
    EXPECT_TRUE(other.forward(batch).allclose((batch - batch.mean(0)) / (batch.var(0, /*unbiased=*/false) + 1e-5).sqrt()));
    // A destroyed network must leave no entry that applies to a later network at the same addresses.
    {
      Network<torch::nn::BatchNorm1d> gone(options);
      convert_sync_batch_norm(gone, groups.world());
    }
    EXPECT_TRUE(Network<torch::nn::BatchNorm1d>(options).forward(batch).equal(other.forward(batch)));
    EXPECT_FALSE(converted.forward(batch).equal(other.forward(batch)));
  });
}

TEST(ConvertSyncBatchNorm, ConvertsALayerByItselfAndKeepsItThroughTo) {
  run_ranks(2, [](ProcessGroups& groups) {
    torch::nn::BatchNorm1d layer(kChannels), other(kChannels);
    convert_sync_batch_norm(*layer, groups.world());
    layer->to(torch::kFloat64);
    other->to(torch::kFloat64);
    const auto batch = torch::full({3, kChannels}, groups.world()->rank(), torch::kFloat64) + torch::arange(3).unsqueeze(1);
    const auto outputs = layer(batch.requires_grad_());
    EXPECT_FALSE(outputs.equal(other(batch)));
    EXPECT_THROW(torch::autograd::grad({outputs.sum()}, {batch}, {}, std::nullopt, /*create_graph=*/true), c10::Error);
  });
}

TEST(ConvertSyncBatchNorm, RefusesALayerThatItCannotRecognise) {
  run_ranks(2, [](ProcessGroups& groups) {
    Network<torch::nn::BatchNorm2d> network(torch::nn::BatchNormOptions(kChannels).affine(false).track_running_stats(false));
    EXPECT_THAT([&] { convert_sync_batch_norm(network, groups.world()); },
                ThrowsMessage<UsageError>(HasSubstr("the batch normalisation norm has neither a weight nor running statistics")));
  });
}

}  // namespace
}  // namespace trainer::nn::convert_test
