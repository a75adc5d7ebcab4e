#include "nn/batch_norm.h"

#include <gtest/gtest.h>

#include <limits>

#include "trainer/error.h"

namespace trainer::nn::test {
namespace {

constexpr int64_t kNormChannels = 5;

torch::Tensor norm_input(uint64_t seed, torch::ScalarType dtype = torch::kFloat64) {
  return at::randn({4, kNormChannels, 3, 6}, at::detail::createCPUGenerator(seed), dtype).mul_(2.0).add_(0.7);
}

void copy_state(const BatchNorm2d& from, torch::nn::BatchNorm2dImpl& to) {
  const torch::NoGradGuard no_grad;
  to.weight.copy_(from.weight);
  to.bias.copy_(from.bias);
}

void expect_close(const torch::Tensor& actual, const torch::Tensor& expected) {
  EXPECT_TRUE(at::allclose(actual, expected, 1e-12, 1e-12)) << actual << "\n" << expected;
}

class BatchNormAgainstTorch : public ::testing::TestWithParam<torch::MemoryFormat> {
 protected:
  void SetUp() override {
    ours_->to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    ours_->weight.copy_(at::linspace(0.5, 2.0, kNormChannels));
    ours_->bias.copy_(at::linspace(-1.0, 1.0, kNormChannels));
    theirs_->to(torch::kFloat64);
    copy_state(*ours_, *theirs_);
  }

  // Forward and backward of both layers in their current mode.
  void step(uint64_t seed) {
    const torch::Tensor x = norm_input(seed).contiguous(GetParam()).requires_grad_();
    const torch::Tensor y = x.detach().clone().requires_grad_();
    const torch::Tensor ours = ours_->forward(x);
    const torch::Tensor theirs = theirs_->forward(y);
    const torch::Tensor gradient = norm_input(seed + 100).contiguous(GetParam());
    ours.backward(gradient);
    theirs.backward(gradient);
    expect_close(ours, theirs);
    expect_close(x.grad(), y.grad());
    expect_close(ours_->weight.grad(), theirs_->weight.grad());
    expect_close(ours_->bias.grad(), theirs_->bias.grad());
    expect_close(ours_->running_mean, theirs_->running_mean);
    expect_close(ours_->running_var, theirs_->running_var);
    EXPECT_TRUE(ours.is_contiguous(GetParam()));
  }

  BatchNormPtr ours_ = batch_norms()(kNormChannels);
  torch::nn::BatchNorm2d theirs_{kNormChannels};
};

TEST_P(BatchNormAgainstTorch, TrainingAndEvaluationAgree) {
  for (uint64_t seed = 1; seed <= 3; ++seed) step(seed);
  EXPECT_EQ(ours_->num_batches_tracked.item<int64_t>(), 3);

  ours_->eval();
  theirs_->eval();
  const torch::Tensor mean = ours_->running_mean.clone();
  const torch::Tensor var = ours_->running_var.clone();
  step(4);
  EXPECT_TRUE(at::equal(ours_->running_mean, mean));
  EXPECT_TRUE(at::equal(ours_->running_var, var));
  EXPECT_EQ(ours_->num_batches_tracked.item<int64_t>(), 3);
}

INSTANTIATE_TEST_SUITE_P(MemoryFormats, BatchNormAgainstTorch,
                         ::testing::Values(torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast));

TEST(BatchNorm, FrozenStatisticsAreUsedAndKeptInTraining) {
  BatchNorm2d in_evaluation(kNormChannels);
  in_evaluation.eval();
  const auto frozen = batch_norms()(kNormChannels);
  for (auto* norm : {&in_evaluation, frozen.get()}) {
    norm->running_mean.fill_(0.5);
    norm->running_var.fill_(2.0);
  }
  struct Network : torch::nn::Module {};
  Network network;
  network.register_module("norm", frozen);
  frozen->freeze_statistics();
  for (int i = 0; i < 2; ++i) {
    network.train();
    EXPECT_TRUE(network.is_training());
    EXPECT_FALSE(frozen->is_training());
    // Frozen statistics do not need a variance of the batch, which one value per channel does not have.
    for (const auto& x : {norm_input(1, torch::kFloat32), torch::ones({1, kNormChannels, 1, 1})}) {
      EXPECT_TRUE(at::equal(frozen->forward(x), in_evaluation.forward(x)));
    }
    network.eval();
  }
  EXPECT_TRUE(at::equal(frozen->running_mean, torch::full({kNormChannels}, 0.5)));
  EXPECT_TRUE(at::equal(frozen->running_var, torch::full({kNormChannels}, 2.0)));
  EXPECT_EQ(frozen->num_batches_tracked.item<int64_t>(), 0);
}

TEST(BatchNorm, UsesEpsAndMomentum) {
  BatchNorm2d norm(kNormChannels, {.eps = 1.0, .momentum = 1.0});
  const torch::Tensor x = norm_input(1, torch::kFloat32);
  const torch::Tensor mean = x.mean({0, 2, 3});
  const torch::Tensor y = norm.forward(x);
  EXPECT_TRUE(at::allclose(norm.running_mean, mean));
  EXPECT_TRUE(at::allclose(norm.running_var, x.var({0, 2, 3}, /*unbiased=*/true)));
  const torch::Tensor var = x.var({0, 2, 3}, /*unbiased=*/false);
  EXPECT_TRUE(at::allclose(y, (x - mean.view({1, -1, 1, 1})) / (var + 1.0).sqrt().view({1, -1, 1, 1}), 1e-5, 1e-6));
}

TEST(BatchNorm, StateHasPyTorchsNamesInItsOrder) {
  const auto norm = batch_norms()(kNormChannels);
  EXPECT_EQ(norm->named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(norm->named_buffers().keys(), (std::vector<std::string>{"running_mean", "running_var", "num_batches_tracked"}));
  EXPECT_TRUE(at::equal(norm->weight, torch::ones(kNormChannels)));
  EXPECT_TRUE(at::equal(norm->running_var, torch::ones(kNormChannels)));
}

TEST(BatchNorm, CountStaysAnIntegerWhenTheTypeChanges) {
  const auto norm = batch_norms()(kNormChannels);
  torch::nn::Sequential network(norm);
  norm->num_batches_tracked.fill_(123457);
  network->to(torch::kBFloat16);
  network->to(torch::kCPU, torch::kFloat64);
  EXPECT_EQ(norm->weight.scalar_type(), torch::kFloat64);
  EXPECT_EQ(norm->running_var.scalar_type(), torch::kFloat64);
  EXPECT_EQ(norm->num_batches_tracked.scalar_type(), torch::kInt64);
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 123457);
  norm->forward(norm_input(1));
  EXPECT_EQ(norm->named_buffers()["num_batches_tracked"].item<int64_t>(), 123458);
}

TEST(BatchNorm, AcceptsBfloat16WithFloat32Weights) {
  const auto norm = batch_norms()(kNormChannels);
  const torch::Tensor x = norm_input(1, torch::kFloat32).to(torch::kBFloat16);
  const torch::Tensor y = norm->forward(x);
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(at::allclose(norm->running_mean, 0.1 * x.to(torch::kFloat32).mean({0, 2, 3}), 1e-4, 1e-5));
}

TEST(BatchNorm, RefusesToTrainOnOneValuePerChannel) {
  const auto norm = batch_norms()(kNormChannels);
  const torch::Tensor single = torch::zeros({1, kNormChannels, 1, 1});
  EXPECT_THROW(norm->forward(single), UsageError);
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 0);
  norm->eval();
  EXPECT_NO_THROW(norm->forward(single));
}

TEST(BatchNorm, EmptyBatchHasZeroGradientsAndDoesNotChangeRunningStatistics) {
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
    const auto norm = batch_norms()(kNormChannels);
    const torch::Tensor x = torch::zeros({0, kNormChannels, 3, 6}).contiguous(format).requires_grad_();
    const torch::Tensor y = norm->forward(x);
    EXPECT_EQ(y.sizes(), x.sizes());
    y.sum().backward();
    EXPECT_EQ(x.grad().sizes(), x.sizes());
    EXPECT_TRUE(at::equal(norm->weight.grad(), torch::zeros({kNormChannels})));
    EXPECT_TRUE(at::equal(norm->bias.grad(), torch::zeros({kNormChannels})));
    EXPECT_TRUE(at::equal(norm->running_mean, torch::zeros({kNormChannels})));
    EXPECT_TRUE(at::equal(norm->running_var, torch::ones({kNormChannels})));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 0);
  }
}

TEST(BatchNorm, WhileStatisticsAreFrozenBatchesDoNotUpdateThem) {
  const auto norm = batch_norms()(kNormChannels);
  const auto x = norm_input(1, torch::kFloat32);
  const auto normalised = norm->forward(x);
  const auto mean = norm->running_mean.clone();
  const auto var = norm->running_var.clone();
  {
    const FrozenStatistics frozen(*norm);
    EXPECT_TRUE(at::equal(norm->forward(x), normalised));
    norm->forward(torch::full_like(x, std::numeric_limits<float>::quiet_NaN()));
  }
  EXPECT_TRUE(at::equal(norm->running_mean, mean));
  EXPECT_TRUE(at::equal(norm->running_var, var));
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  norm->forward(norm_input(2, torch::kFloat32));
  EXPECT_FALSE(at::equal(norm->running_mean, mean));
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 2);
}

TEST(BatchNorm, WithoutMomentumAveragesAllBatches) {
  BatchNorm2d norm(kNormChannels, {.momentum = std::nullopt});
  norm.to(torch::kFloat64);
  torch::Tensor mean = torch::zeros({kNormChannels}, torch::kFloat64);
  torch::Tensor var = torch::zeros({kNormChannels}, torch::kFloat64);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const torch::Tensor x = norm_input(seed);
    norm.forward(x);
    mean += x.mean({0, 2, 3}) / 4.0;
    var += x.var({0, 2, 3}, /*unbiased=*/true) / 4.0;
  }
  expect_close(norm.running_mean, mean);
  expect_close(norm.running_var, var);
}

}  // namespace
}  // namespace trainer::nn::test
