#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/optim/golden.h"

namespace trainer::optim::test {
namespace {

const std::vector<std::string> kWithWeightDecay = {
    "{name: sgd, lr: 0.1, momentum: 0.9, dampening: 0.5, weight_decay: 0.1}",
    "{name: adam, lr: 0.01, weight_decay: 0.1}",
    "{name: adamw, lr: 0.01, weight_decay: 0.1}",
    "{name: sam, lr: 0.1, momentum: 0.9, weight_decay: 0.1}",
    "{name: muon, lr: 0.1, normalize_weights: true, sgd_weight_decay: 0.01}",
};

// Returns the largest difference from the golden problem in which the bias has its first gradient at update 2. Here, the bias has a
// gradient of zeros before that update.
double difference_from_late_gradient(const std::string& name, const std::string& yaml, bool skip_zero_grads) {
  const auto expected = read_golden("optimizers.txt").at(name);
  OptimizerProblem problem;
  const auto optimizer = make_optimizer(read_component(optimizer_registry(), yaml), problem.one_group(), skip_zero_grads);
  double largest = 0;
  for (int update = 0; update < OptimizerProblem::kUpdates; ++update) {
    if (update < 2) problem.bias.mutable_grad() = torch::zeros_like(problem.bias);
    problem.set_gradients(update, /*first_update_of_bias=*/2);
    optimizer->step(optimizer->base_lr() * (1 - update / 8.0));
    const auto row = torch::tensor(expected.at(static_cast<size_t>(update)), torch::kFloat64);
    largest = std::max(largest, (problem.values() - row).abs().max().item<double>());
  }
  return largest;
}

// A zero gradient causes no weight decay, no momentum and no step count, as if there were no gradient.
TEST(SkipZeroGrads, MatchesPythonWithoutAGradient) {
  const std::map<std::string, std::string> cases = {
      {"sgd_late_gradient", "{name: sgd, lr: 0.1, momentum: 0.9, dampening: 0.5}"},
      {"adam_late_gradient", "{name: adam, lr: 0.01}"},
      {"adamw_late_gradient", "{name: adamw, lr: 0.01, weight_decay: 0.1}"},
      {"muon_late_gradient", "{name: muon, sgd_weight_decay: 0.05}"},
  };
  for (const auto& [name, yaml] : cases) {
    EXPECT_LT(difference_from_late_gradient(name, yaml, /*skip_zero_grads=*/true), 1e-12) << name;
    EXPECT_GT(difference_from_late_gradient(name, yaml, /*skip_zero_grads=*/false), 1e-6) << name;
  }
}

// A parameter with a zero gradient stays unchanged even if it has momentum; the other parameter continues to train.
TEST(SkipZeroGrads, KeepsTheParameterInLaterSteps) {
  for (const auto& yaml : kWithWeightDecay) {
    for (const bool skip : {true, false}) {
      OptimizerProblem problem;
      const auto optimizer = make_optimizer(read_component(optimizer_registry(), yaml), problem.two_groups(), skip);
      take_step(problem, *optimizer, 0, 0.1);
      const auto weight = problem.weight.detach().clone();
      const auto bias = problem.bias.detach().clone();
      problem.set_gradients(1);
      if (optimizer->needs_second_pass()) optimizer->perturb_parameters();
      problem.set_gradients(1);
      problem.bias.mutable_grad().zero_();
      optimizer->step(0.1);
      EXPECT_EQ(torch::equal(problem.bias, bias), skip) << yaml;
      EXPECT_FALSE(torch::equal(problem.weight, weight)) << yaml;
    }
  }
}

TEST(SkipZeroGrads, MissingAndZeroGradientsAreEqual) {
  for (const auto& yaml : kWithWeightDecay) {
    for (const bool with_zeros : {false, true}) {
      OptimizerProblem problem;
      const auto optimizer = make_optimizer(read_component(optimizer_registry(), yaml), problem.one_group(), /*skip_zero_grads=*/true);
      take_step(problem, *optimizer, 0, 0.1);
      const auto before = problem.values();
      optimizer->zero_grad();
      if (optimizer->needs_second_pass()) optimizer->perturb_parameters();
      if (with_zeros) problem.weight.mutable_grad() = torch::zeros_like(problem.weight);
      optimizer->step(0.1);
      EXPECT_TRUE(torch::equal(problem.values(), before)) << yaml;
    }
  }
}

// One element is enough, even if its square underflows, or if it is negative or NaN.
TEST(SkipZeroGrads, AnyElementThatIsNotZeroCounts) {
  for (const double value : {1e-30, -1e-30, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    OptimizerProblem problem;
    problem.use_float32();
    const auto optimizer =
        make_optimizer(read_component(optimizer_registry(), "{name: sgd, weight_decay: 0.1}"), problem.one_group(), true);
    const auto before = problem.weight.detach().clone();
    problem.weight.mutable_grad() = torch::zeros_like(problem.weight);
    problem.weight.mutable_grad()[1][2][1][1] = value;
    optimizer->step(0.1);
    EXPECT_FALSE(torch::equal(problem.weight, before)) << value;
  }
}

}  // namespace
}  // namespace trainer::optim::test
