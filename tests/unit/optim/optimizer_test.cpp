#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include "tests/unit/optim/golden.h"

namespace trainer::optim::test {
namespace {

torch::nn::Sequential convolution_and_norm() {
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)), torch::nn::BatchNorm2d(4), torch::nn::Flatten(),
                               torch::nn::Linear(16, 2));
}

TEST(GroupParameters, AllInOneGroup) {
  const auto model = convolution_and_norm();
  const auto groups = group_parameters(*model, /*decay_norm_and_bias=*/true);
  ASSERT_EQ(groups.size(), 1);
  EXPECT_TRUE(groups[0].decay);
  const auto expected = model->parameters();
  ASSERT_EQ(groups[0].params.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(groups[0].params[i].is_same(expected[i]));
}

TEST(GroupParameters, NormAndBiasWithoutDecay) {
  const auto groups = group_parameters(*convolution_and_norm(), /*decay_norm_and_bias=*/false);
  ASSERT_EQ(groups.size(), 2);
  EXPECT_TRUE(groups[0].decay);
  EXPECT_FALSE(groups[1].decay);
  ASSERT_EQ(groups[0].params.size(), 2);  // the weights of convolution and linear layer
  for (const auto& param : groups[0].params) EXPECT_GE(param.dim(), 2);
  ASSERT_EQ(groups[1].params.size(), 4);
  for (const auto& param : groups[1].params) EXPECT_EQ(param.dim(), 1);
}

TEST(GroupParameters, OmitsAnEmptyGroup) {
  const torch::nn::BatchNorm2d norm(4);
  const auto groups = group_parameters(*norm, /*decay_norm_and_bias=*/false);
  ASSERT_EQ(groups.size(), 1);
  EXPECT_FALSE(groups[0].decay);
}

TEST(OptimizerRegistry, EveryKindIsConstructibleFromItsDefaults) {
  for (const auto& name : optimizer_registry().names()) {
    OptimizerProblem problem;
    const auto before = problem.values();
    const auto optimizer = make_optimizer(optimizer_registry().configure(name), problem.two_groups());
    ASSERT_EQ(optimizer->parameters().size(), 3) << name;
    EXPECT_TRUE(optimizer->parameters()[2].is_same(problem.unused)) << name;
    EXPECT_GT(optimizer->base_lr(), 0) << name;
    take_step(problem, *optimizer, 0, optimizer->base_lr());
    EXPECT_GT((problem.values() - before).abs().max().item<double>(), 0) << name;
  }
}

TEST(OptimizerRegistry, StepWithoutAnyGradientChangesNothing) {
  for (const auto& name : optimizer_registry().names()) {
    OptimizerProblem problem;
    const auto before = problem.values();
    const auto optimizer = make_optimizer(optimizer_registry().configure(name), problem.one_group());
    if (optimizer->needs_second_pass()) optimizer->perturb_parameters();
    optimizer->step(1);
    EXPECT_TRUE(torch::equal(problem.values(), before)) << name;
  }
}

TEST(OptimizerRegistry, ZeroGradDropsTheGradients) {
  OptimizerProblem problem;
  const auto optimizer = make_optimizer(read_component(optimizer_registry(), "{name: sgd}"), problem.one_group());
  problem.set_gradients(0);
  ASSERT_TRUE(problem.weight.grad().defined());
  optimizer->zero_grad();
  EXPECT_FALSE(problem.weight.grad().defined());
  EXPECT_FALSE(problem.bias.grad().defined());
}

TEST(OptimizerRegistry, StepIsNotRecordedByAutograd) {
  for (const auto& name : optimizer_registry().names()) {
    OptimizerProblem problem;
    take_step(problem, *make_optimizer(optimizer_registry().configure(name), problem.one_group()), 0, 0.1);
    EXPECT_TRUE(problem.weight.is_leaf()) << name;
    EXPECT_TRUE(problem.weight.requires_grad()) << name;
    EXPECT_TRUE(torch::GradMode::is_enabled());
  }
}

}  // namespace
}  // namespace trainer::optim::test
