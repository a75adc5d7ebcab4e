#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include "trainer/error.h"
#include "trainer/optim.h"
#include "trainer/torch.h"

namespace trainer::optim::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <class Optimizer, class Options>
void expect_resumes(const Options& options) {
  const auto make = [] { return torch::full({3, 2}, 0.5).requires_grad_(); };
  auto straight = make(), resumed = make(), unused = make();
  const auto step = [](Optimizer& optimizer, torch::Tensor& parameter, int number) {
    optimizer.zero_grad();
    (parameter.sin() * (number + 1)).sum().backward();
    optimizer.step();
  };
  Optimizer first({straight, unused}, options);
  for (int number = 0; number < 3; ++number) step(first, straight, number);
  const auto tree = state_of(first);
  {
    const torch::NoGradGuard no_grad;
    resumed.copy_(straight);
  }
  Optimizer second({resumed, unused}, options);
  load_state_of(second, state::View(tree, "a.pt"));
  for (int number = 3; number < 5; ++number) {
    step(first, straight, number);
    step(second, resumed, number);
  }
  EXPECT_TRUE(resumed.equal(straight));
}

TEST(TorchOptimizers, ResumeBitForBit) {
  expect_resumes<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
  expect_resumes<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01));
  expect_resumes<torch::optim::Adam>(torch::optim::AdamOptions(0.1));
  expect_resumes<torch::optim::Adam>(torch::optim::AdamOptions(0.1).amsgrad(true));
  expect_resumes<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1).weight_decay(0.1));
  expect_resumes<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.1));
  expect_resumes<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.1).momentum(0.9).centered(true));
  expect_resumes<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1).lr_decay(0.1).initial_accumulator_value(0.5));
}

std::vector<std::string> names_of(const state::View& view) {
  std::vector<std::string> names;
  for (const auto& key : view.keys()) names.push_back(state::to_string(key));
  return names;
}

// The names are those of Python's state_dict() of the same optimizer after one step.
TEST(TorchOptimizers, HavePythonsNames) {
  auto parameter = torch::zeros({2}).requires_grad_();
  parameter.sum().backward();
  const auto expect_names = [](torch::optim::Optimizer& optimizer, const std::vector<std::string>& of_state,
                               const std::vector<std::string>& of_group) {
    optimizer.step();
    const auto tree = state_of(optimizer);
    const state::View view(tree, "a.pt");
    EXPECT_EQ(names_of(view.at("state").at(int64_t{0})), of_state);
    EXPECT_EQ(names_of(view.at("param_groups").elements()[0]), of_group);
  };
  const std::vector<std::string> of_rmsprop = {"lr",       "momentum", "alpha",          "eps",   "centered", "weight_decay", "capturable",
                                               "maximize", "foreach",  "differentiable", "params"};
  torch::optim::RMSprop plain({parameter}, torch::optim::RMSpropOptions(0.1));
  expect_names(plain, {"step", "square_avg"}, of_rmsprop);
  torch::optim::RMSprop centred({parameter}, torch::optim::RMSpropOptions(0.1).momentum(0.9).centered(true));
  expect_names(centred, {"step", "square_avg", "momentum_buffer", "grad_avg"}, of_rmsprop);
  torch::optim::Adagrad adagrad({parameter}, torch::optim::AdagradOptions(0.1));
  expect_names(
      adagrad, {"step", "sum"},
      {"lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value", "maximize", "foreach", "differentiable", "fused", "params"});
}

TEST(TorchOptimizers, RefuseTheStateOfOthers) {
  auto parameter = torch::zeros({2}).requires_grad_(), other = torch::zeros({2}).requires_grad_();
  torch::optim::SGD one({parameter}, 0.1), two({parameter, other}, 0.1);
  const auto tree = state_of(two);
  EXPECT_THAT(
      [&] { load_state_of(one, state::View(tree, "a.pt")); },
      ThrowsMessage<CheckpointError>(HasSubstr("a.pt: param_groups[0].params: has 2 parameters, but the optimizer has 1 in this group")));
  state::Dict group;
  group.add("lr", 0.1);
  group.add("params", state::List{int64_t{1}, int64_t{0}});
  state::Dict reversed;
  reversed.add("state", state::Dict());
  reversed.add("param_groups", state::List{std::move(group)});
  const state::Tree other_order(std::move(reversed));
  EXPECT_THAT([&] { load_state_of(two, state::View(other_order, "a.pt")); },
              ThrowsMessage<CheckpointError>(HasSubstr("a.pt: param_groups[0].params[0]: is 1 instead of 0")));
  torch::optim::Adam plain({parameter}, torch::optim::AdamOptions(0.1)),
      with_largest({parameter}, torch::optim::AdamOptions(0.1).amsgrad(true));
  parameter.sum().backward();
  plain.step();
  const auto without_largest = state_of(plain);
  EXPECT_THAT([&] { load_state_of(with_largest, state::View(without_largest, "a.pt")); },
              ThrowsMessage<CheckpointError>(HasSubstr("max_exp_avg_sq")));
  torch::optim::Adagrad adagrad({parameter}, torch::optim::AdagradOptions(0.1));
  const auto of_sgd = state_of(one);
  EXPECT_THAT([&] { load_state_of(adagrad, state::View(of_sgd, "a.pt")); },
              ThrowsMessage<CheckpointError>(HasSubstr("a.pt: state: has no entry for parameter 0")));
  torch::optim::LBFGS lbfgs({parameter}, torch::optim::LBFGSOptions());
  EXPECT_THAT([&] { state_of(lbfgs); }, ThrowsMessage<UsageError>(HasSubstr("the state of this optimizer cannot be saved")));
}

// Each update equals that of LibTorch's optimizer, also after a state was loaded.
template <class Libtorch, class Options>
void expect_adapted(const Options& options) {
  const auto make = [] { return torch::full({3, 2}, 0.5).requires_grad_(); };
  auto alone = make(), adapted = make(), resumed = make(), without_grad = make();
  const auto adapt = [&](const torch::Tensor& parameter) {
    std::vector<ParamGroup> groups = {{.params = {parameter}, .lr_factor = 2}, {.params = {without_grad}}};
    return of_libtorch(std::move(groups), [&](const ParamGroup& group) { return std::make_unique<Libtorch>(group.params, options); });
  };
  const auto differentiate = [](torch::Tensor& parameter) {
    parameter.mutable_grad().reset();
    parameter.sin().sum().backward();
  };
  auto twice = options;
  twice.lr(0.2);
  Libtorch libtorch({alone}, twice);
  const auto first = adapt(adapted), second = adapt(resumed);
  EXPECT_EQ(first->base_lr(), 0.1);
  for (int number = 0; number < 4; ++number) {
    differentiate(alone);
    differentiate(adapted);
    libtorch.step();
    first->step(5, torch::ones({}));
    first->step(0.1, torch::zeros({}));
    EXPECT_TRUE(adapted.equal(alone));
  }
  const auto tree = first->state(0.1, {});
  second->load_state(state::View(tree, "a.pt"));
  {
    const torch::NoGradGuard no_grad;
    resumed.copy_(alone);
  }
  differentiate(resumed);
  differentiate(alone);
  second->step(0.1);
  libtorch.step();
  EXPECT_TRUE(resumed.equal(alone));
  EXPECT_EQ(of_libtorch({}, [&](const ParamGroup& group) { return std::make_unique<Libtorch>(group.params, options); })->base_lr(), 0.1);
}

TEST(TorchOptimizers, AreOptimizersOfTheProgram) {
  expect_adapted<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  expect_adapted<torch::optim::Adam>(torch::optim::AdamOptions(0.1).amsgrad(true));
  expect_adapted<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.1));
  expect_adapted<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1));
  const auto make_lbfgs = [](const ParamGroup& group) { return std::make_unique<torch::optim::LBFGS>(group.params); };
  EXPECT_THAT([&] { of_libtorch({{.params = {torch::zeros({2})}}}, make_lbfgs); },
              ThrowsMessage<UsageError>(HasSubstr("use torch::optim::SGD, Adam, AdamW, RMSprop or Adagrad")));
}

}  // namespace
}  // namespace trainer::optim::test
