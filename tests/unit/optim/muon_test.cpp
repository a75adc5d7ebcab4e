#include <gtest/gtest.h>

#include "tests/unit/optim/golden.h"
#include "train/optim/optimizer.h"
#include "trainer/error.h"

namespace trainer::optim::test {
namespace {

const std::string kOptions =
    "lr: 0.24, momentum: 0.6, nesterov: false, ns_steps: 3, normalize_weights: true, linear_lr: 0.6, bias_lr: 0.05, sgd_momentum: 0.85, "
    "sgd_weight_decay: 0.01";

std::unique_ptr<Optimizer> muon(const std::string& keys, std::vector<ParamGroup> groups) {
  return make_optimizer(read_component(optimizer_registry(), "{name: muon, " + keys + "}"), std::move(groups));
}

void expect_muon_like_python(const std::string& name, const std::string& keys, int first_update_of_bias = 0) {
  OptimizerProblem problem;
  const auto optimizer = muon(keys, problem.one_group());
  EXPECT_LT(difference_from_golden(name, problem, *optimizer, first_update_of_bias), 1e-12) << name;
}

// A parameter after an update at `lr` with this gradient.
torch::Tensor updated(const std::string& keys, const torch::Tensor& value, const torch::Tensor& gradient, double lr, bool decay = true) {
  auto param = value.clone().requires_grad_();
  param.mutable_grad() = gradient;
  muon(keys, {{.params = {param}, .decay = decay}})->step(lr);
  return param.detach();
}

double largest_difference(const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(Muon, LikePython) {
  expect_muon_like_python("muon", "lr: 0.02");
  expect_muon_like_python("muon_options", kOptions);
  expect_muon_like_python("muon_late_gradient", "sgd_weight_decay: 0.05", /*first_update_of_bias=*/2);
}

TEST(Muon, ChannelsLastParameter) {
  for (const bool contiguous_gradients : {false, true}) {
    OptimizerProblem problem;
    problem.use_channels_last();
    problem.contiguous_gradients = contiguous_gradients;
    const auto optimizer = muon(kOptions, problem.one_group());
    EXPECT_LT(difference_from_golden("muon_options", problem, *optimizer), 1e-12);
    EXPECT_TRUE(problem.weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_EQ(problem.weight.grad().is_contiguous(), contiguous_gradients);
  }
}

TEST(Muon, Float32) {
  OptimizerProblem problem;
  problem.use_float32();
  const auto optimizer = muon(kOptions, problem.one_group());
  const double difference = difference_from_golden("muon_options", problem, *optimizer);
  EXPECT_LT(difference, 1e-5);
  EXPECT_GT(difference, 1e-12);
}

// After five steps the polynomial maps every value from 0.003 to 1 to a value from 0.6818 to 1.2025. Divided by their 2-norm, the singular
// values of these random matrices are above 0.03.
TEST(Muon, UpdateIsNearlyOrthogonal) {
  torch::manual_seed(0);
  for (const int64_t num_filters : {8, 12, 27}) {
    for (const auto type : {torch::kFloat64, torch::kFloat32}) {
      const auto gradient = torch::randn({num_filters, 2, 3, 3}, type);
      const auto update = -updated("lr: 1", torch::zeros_like(gradient), gradient, 1.0);
      const auto values = std::get<1>(torch::svd(update.flatten(1)));
      EXPECT_GT(values.min().item<double>(), 0.68) << num_filters;
      EXPECT_LT(values.max().item<double>(), 1.21) << num_filters;
      EXPECT_GT((update * gradient).sum().item<double>(), 0) << num_filters;
    }
  }
}

TEST(Muon, SizeOfTheGradientDoesNotMatter) {
  const auto value = OptimizerProblem::pattern({4, 3, 2, 2}, 0);
  const auto gradient = OptimizerProblem::pattern({4, 3, 2, 2}, 1);
  const auto expected = updated("lr: 0.1", value, gradient, 0.1);
  for (const double factor : {0.01, 100.0}) {
    EXPECT_LT(largest_difference(updated("lr: 0.1", value, factor * gradient, 0.1), expected), 1e-5) << factor;
  }
}

TEST(Muon, NormalizesBeforeTheUpdate) {
  const auto value = OptimizerProblem::pattern({4, 3, 2, 2}, 0);
  const auto weight = updated("normalize_weights: true", value, torch::zeros_like(value), 0.02);
  EXPECT_NEAR(weight.norm().item<double>(), 2, 1e-12);
  EXPECT_LT(largest_difference(weight, 2 * value / value.norm()), 1e-12);
}

TEST(Muon, ZerosStayZeros) {
  const auto zeros = torch::zeros({4, 3, 2, 2});
  for (const std::string keys : {"normalize_weights: false", "normalize_weights: true"}) {
    EXPECT_TRUE(torch::equal(updated(keys, zeros, zeros, 0.02), zeros)) << keys;
  }
}

// Also tests learning rates that follow a schedule. SGD updates parameters of all shapes except the weights of convolutions.
TEST(Muon, OtherParametersHaveTheirOwnLearningRates) {
  const std::string keys = "lr: 0.02, linear_lr: 0.5, bias_lr: 0.125, sgd_momentum: 0";
  for (const double factor : {1.0, 0.5}) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{}, {5}, {4, 3}, {2, 3, 2}}) {
      const auto value = torch::ones(shape, torch::kFloat64);
      const auto difference = value - updated(keys, value, torch::full(shape, 2.0, torch::kFloat64), 0.02 * factor);
      const double expected = 2 * factor * (shape.size() >= 2 ? 0.5 : 0.125);
      EXPECT_LT((difference - expected).abs().max().item<double>(), 1e-12) << shape.size();
    }
  }
}

TEST(Muon, NesterovOfOtherParameters) {
  const auto value = torch::ones({4, 3}, torch::kFloat64);
  const auto difference = value - updated("lr: 0.02, linear_lr: 0.5, sgd_momentum: 0.75", value, value, 0.02);
  EXPECT_LT(largest_difference(difference, 0.5 * 1.75 * value), 1e-12);
}

// With a gradient of zeros, the parameters that SGD updates decay by the same factor, whatever linear_lr and bias_lr are.
TEST(Muon, DecaysAllOtherParametersEqually) {
  const std::string keys = "lr: 0.02, linear_lr: 0.5, bias_lr: 0.125, sgd_momentum: 0, sgd_weight_decay: 0.0625";
  for (const auto& shape : std::vector<std::vector<int64_t>>{{5}, {4, 3}}) {
    const auto value = torch::ones(shape, torch::kFloat64);
    const auto zeros = torch::zeros_like(value);
    EXPECT_LT(largest_difference(updated(keys, value, zeros, 0.02), (1 - 0.0625) * value), 1e-12);
    EXPECT_LT(largest_difference(updated(keys, value, zeros, 0.01), (1 - 0.0625 / 2) * value), 1e-12);
    EXPECT_TRUE(torch::equal(updated(keys, value, zeros, 0.02, /*decay=*/false), value));
  }
  const auto filters = OptimizerProblem::pattern({4, 3, 2, 2}, 0);
  EXPECT_TRUE(torch::equal(updated(keys, filters, torch::zeros_like(filters), 0.02), filters));
}

TEST(Muon, LearningRateOfZeroChangesNothing) {
  const std::string keys = "linear_lr: 0, bias_lr: 0, sgd_weight_decay: 0.0625";
  for (const auto& shape : std::vector<std::vector<int64_t>>{{5}, {4, 3}}) {
    const auto value = torch::ones(shape, torch::kFloat64);
    EXPECT_TRUE(torch::equal(updated(keys, value, value, 0.02), value));
  }
}

TEST(Muon, NeedsALearningRateAndAStep) {
  EXPECT_THROW(muon("lr: 0", {}), UsageError);
  EXPECT_THROW(muon("ns_steps: 0", {}), UsageError);
}

}  // namespace
}  // namespace trainer::optim::test
