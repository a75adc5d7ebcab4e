#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/optim/golden.h"
#include "trainer/error.h"

namespace trainer::optim::test {
namespace {

std::unique_ptr<Optimizer> sam(const std::string& keys, const OptimizerProblem& problem) {
  return make_optimizer(read_component(optimizer_registry(), "{name: sam, " + keys + "}"), problem.two_groups());
}

void expect_sam_like_python(const std::string& name, const std::string& keys, OptimizerProblem problem, int first_update_of_bias = 0) {
  const auto optimizer = sam(keys, problem);
  EXPECT_LT(difference_from_golden(name, problem, *optimizer, first_update_of_bias), 1e-12) << name;
}

TEST(Sam, LikePython) {
  expect_sam_like_python("sam", "lr: 0.1", {});
  expect_sam_like_python("sam_late_gradient", "rho: 0.5, lr: 0.1, momentum: 0.9", {}, /*first_update_of_bias=*/2);
}

TEST(Sam, KeysOfSgd) {
  OptimizerProblem problem;
  const auto optimizer = make_optimizer(
      read_component(optimizer_registry(), "{name: sam, rho: 0.5, lr: 0.1, momentum: 0.9, dampening: 0.25, weight_decay: 0.02}"),
      problem.one_group());
  EXPECT_LT(difference_from_golden("sam_momentum", problem, *optimizer), 1e-12);
  EXPECT_THROW(sam("nesterov: true", problem), UsageError);
}

TEST(Sam, ChannelsLastParameter) {
  for (const bool contiguous_gradients : {false, true}) {
    OptimizerProblem problem;
    problem.use_channels_last();
    problem.contiguous_gradients = contiguous_gradients;
    expect_sam_like_python("sam", "lr: 0.1", problem);
  }
}

TEST(Sam, AscendsByRhoAlongTheGradientOfAllParameters) {
  OptimizerProblem problem;
  const auto optimizer = sam("rho: 0.25", problem);
  const auto before = problem.values();
  problem.set_gradients(0);
  const auto gradient = torch::cat({problem.weight.grad().flatten(), problem.bias.grad(), torch::zeros(2, torch::kFloat64)});
  optimizer->perturb_parameters();
  EXPECT_LT((problem.values() - before - 0.25 * gradient / gradient.norm()).abs().max().item<double>(), 1e-12);
  EXPECT_FALSE(problem.weight.grad().defined());
  EXPECT_FALSE(problem.bias.grad().defined());
  EXPECT_TRUE(problem.weight.is_leaf());
}

TEST(Sam, WithRhoZeroEqualsSgd) {
  OptimizerProblem problem;
  const auto optimizer = sam("rho: 0, lr: 0.1, weight_decay: 0.02", problem);
  OptimizerProblem sgd_problem;
  const auto sgd =
      make_optimizer(read_component(optimizer_registry(), "{name: sgd, lr: 0.1, weight_decay: 0.02}"), sgd_problem.two_groups());
  for (int update = 0; update < OptimizerProblem::kUpdates; ++update) {
    take_step(problem, *optimizer, update, 0.1);
    take_step(sgd_problem, *sgd, update, 0.1);
  }
  EXPECT_TRUE(torch::equal(problem.values(), sgd_problem.values()));
}

// Elements whose low bits would be lost in a subtraction are restored exactly.
TEST(Sam, StepRestoresTheParametersBitForBit) {
  OptimizerProblem problem;
  problem.use_float32();
  {
    const torch::NoGradGuard no_grad;
    problem.weight.mul_(1e-9);
    problem.bias.add_(1.0 / 3);
  }
  const auto optimizer = sam("rho: 100", problem);
  const auto before = problem.values();
  problem.set_gradients(0);
  optimizer->perturb_parameters();
  ASSERT_FALSE(torch::equal(problem.values(), before));
  optimizer->step(0.1);  // without a gradient
  EXPECT_TRUE(torch::equal(problem.values(), before));
}

TEST(Sam, NonFiniteGradientChangesNothing) {
  for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    OptimizerProblem problem;
    const auto optimizer = sam("momentum: 0.9", problem);
    const auto before = problem.values();
    problem.set_gradients(0);
    problem.bias.mutable_grad()[1] = value;
    optimizer->perturb_parameters();
    EXPECT_TRUE(torch::equal(problem.values(), before)) << value;
    problem.set_gradients(0);
    problem.bias.mutable_grad()[1] = value;
    optimizer->step(0.1, torch::ones({}));
    EXPECT_TRUE(torch::equal(problem.values(), before)) << value;
  }
}

TEST(Sam, ZeroGradientChangesNothing) {
  OptimizerProblem problem;
  const auto optimizer = sam("lr: 0.1", problem);
  const auto before = problem.values();
  problem.weight.mutable_grad() = torch::zeros_like(problem.weight);
  optimizer->perturb_parameters();
  EXPECT_TRUE(torch::equal(problem.values(), before));
}

TEST(Sam, RefusesPassesInTheWrongOrder) {
  OptimizerProblem problem;
  const auto optimizer = sam("lr: 0.1", problem);
  EXPECT_TRUE(optimizer->needs_second_pass());
  EXPECT_THROW(optimizer->step(0.1), c10::Error);
  problem.set_gradients(0);
  optimizer->perturb_parameters();
  EXPECT_THROW(optimizer->perturb_parameters(), c10::Error);
  optimizer->step(0.1);
  EXPECT_THROW(optimizer->step(0.1), c10::Error);

  const auto sgd = make_optimizer(read_component(optimizer_registry(), "{name: sgd}"), problem.one_group());
  EXPECT_FALSE(sgd->needs_second_pass());
  EXPECT_THROW(sgd->perturb_parameters(), c10::Error);
}

}  // namespace
}  // namespace trainer::optim::test
