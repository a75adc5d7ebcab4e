#include "train/optim/optimizer.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/normalization.h>

#include "tests/unit/optim/golden.h"
#include "trainer/nn.h"

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

TEST(GroupParameters, SectionsAfterTheRestInTheirOrder) {
  const auto model = convolution_and_norm();
  const auto params = model->parameters();  // weight and bias of "0" (convolution), "1" (norm) and "3" (linear)
  std::vector<ParameterGroupOptions> sections(2);
  sections[0] = {.parameters = {"3"}, .lr_factor = 10, .weight_decay = {}};
  sections[1] = {.parameters = {"0.bias", "3.weight"}, .lr_factor = 0.5, .weight_decay = 0.25};
  const auto expect_group = [&](const ParamGroup& group, std::vector<size_t> indices, bool decay, double lr_factor) {
    ASSERT_EQ(group.params.size(), indices.size());
    for (size_t i = 0; i < indices.size(); ++i) EXPECT_TRUE(group.params[i].is_same(params[indices[i]])) << i;
    EXPECT_EQ(group.decay, decay);
    EXPECT_EQ(group.lr_factor, lr_factor);
  };

  auto groups = group_parameters(*model, /*decay_norm_and_bias=*/true, sections);
  ASSERT_EQ(groups.size(), 3U);
  expect_group(groups[0], {0, 2, 3}, true, 1);
  expect_group(groups[1], {4, 5}, true, 10);
  expect_group(groups[2], {1}, true, 0.5);
  EXPECT_FALSE(groups[1].weight_decay);
  EXPECT_EQ(groups[2].weight_decay, 0.25);

  // A section's own weight decay applies to all parameters that it names.
  groups = group_parameters(*model, /*decay_norm_and_bias=*/false, sections);
  ASSERT_EQ(groups.size(), 5U);
  expect_group(groups[0], {0}, true, 1);
  expect_group(groups[1], {2, 3}, false, 1);
  expect_group(groups[2], {4}, true, 10);
  expect_group(groups[3], {5}, false, 10);
  expect_group(groups[4], {1}, true, 0.5);
}

TEST(GroupParameters, LearningRatesByLayer) {
  struct Network : torch::nn::Module {
    Network() {
      token = register_parameter("token", torch::zeros({2}));
      register_module("stem", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)));
      register_module("norm", torch::nn::BatchNorm2d(4));
      auto blocks = std::make_shared<trainer::nn::LayerList>();
      for (int i = 0; i < 2; ++i) blocks->add(std::make_shared<Block>());
      register_module("blocks", blocks);
      register_module("last_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
      register_module("head", torch::nn::Linear(4, 2));
    }
    struct Block : torch::nn::Module {
      Block() { register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3))); }
      torch::Tensor forward(const torch::Tensor& x) { return x; }
    };
    torch::Tensor token;
  };
  const Network network;
  const auto groups =
      group_parameters(network, /*decay_norm_and_bias=*/true, {{.parameters = {"head"}, .lr_factor = 10, .weight_decay = {}}}, 0.5);
  std::vector<std::pair<double, std::string>> factors;
  for (const auto& item : network.named_parameters()) {
    for (const auto& group : groups) {
      for (const auto& param : group.params) {
        if (param.is_same(item.value()) && item.key().find("bias") == std::string::npos) factors.emplace_back(group.lr_factor, item.key());
      }
    }
  }
  const std::vector<std::pair<double, std::string>> expected = {{0.125, "token"},
                                                                {0.125, "stem.weight"},
                                                                {0.125, "norm.weight"},
                                                                {0.25, "blocks.0.conv.weight"},
                                                                {0.5, "blocks.1.conv.weight"},
                                                                {0.5, "last_norm.weight"},
                                                                {10, "head.weight"}};
  EXPECT_EQ(factors, expected);
  EXPECT_EQ(groups.size(), 4U);
}

TEST(GroupParameters, LeavesOutFrozenParameters) {
  const auto model = convolution_and_norm();
  auto params = model->parameters();
  for (const size_t i : {0, 2, 4}) params[i].requires_grad_(false);
  const auto groups = group_parameters(*model, /*decay_norm_and_bias=*/true, {{.parameters = {"3"}, .lr_factor = 2, .weight_decay = {}}});
  ASSERT_EQ(groups.size(), 2U);
  ASSERT_EQ(groups[0].params.size(), 2U);
  EXPECT_TRUE(groups[0].params[0].is_same(params[1]));
  EXPECT_TRUE(groups[0].params[1].is_same(params[3]));
  ASSERT_EQ(groups[1].params.size(), 1U);
  EXPECT_TRUE(groups[1].params[0].is_same(params[5]));
}

TEST(OptimizerGroups, LikePythonWithALearningRateAndAWeightDecayOfTheirOwn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"sgd_own_options", "{name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.02}"},
      {"adam_own_options", "{name: adam, lr: 0.01, betas: [0.8, 0.95]}"},
      {"adamw_own_options", "{name: adamw, lr: 0.01}"},
      {"rmsprop_own_options", "{name: rmsprop, lr: 0.02, momentum: 0.9, centered: true}"},
      {"sam_own_options", "{name: sam, rho: 0.5, lr: 0.1, momentum: 0.9}"},
      {"muon_own_options", "{name: muon, lr: 0.02}"},
  };
  for (const auto& [name, yaml] : cases) {
    OptimizerProblem problem;
    const auto optimizer = make_optimizer(read_component(optimizer_registry(), yaml), problem.own_options());
    EXPECT_LT(difference_from_golden(name, problem, *optimizer), 1e-12) << name;
  }
  EXPECT_EQ(cases.size(), optimizer_registry().names().size());
}

TEST(OptimizerGroups, AFactorOfZeroKeepsTheParameters) {
  for (const auto& name : optimizer_registry().names()) {
    OptimizerProblem problem;
    auto groups = problem.own_options();
    groups[1].lr_factor = 0;
    const auto before = problem.bias.detach().clone();
    const auto optimizer = make_optimizer(optimizer_registry().configure(name), std::move(groups));
    for (int update = 0; update < 3; ++update) take_step(problem, *optimizer, update, optimizer->base_lr());
    EXPECT_TRUE(torch::equal(problem.bias, before)) << name;
  }
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
