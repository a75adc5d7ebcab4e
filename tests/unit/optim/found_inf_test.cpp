// Steps that found_inf skips.

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/optim/golden.h"

namespace trainer::optim::test {
namespace {

const std::vector<std::string> kSkippingOptimizers = {
    "{name: sgd, weight_decay: 0.02}",
    "{name: sgd, momentum: 0.9, weight_decay: 0.02}",
    "{name: sgd, momentum: 0.9, dampening: 0.5, weight_decay: 0.02}",
    "{name: sgd, momentum: 0.9, nesterov: true}",
    "{name: adam, lr: 0.01, weight_decay: 0.1}",
    "{name: adamw, lr: 0.01}",
    "{name: sam, rho: 0.5, momentum: 0.9}",
    "{name: sam, rho: 0.5, momentum: 0.9, dampening: 0.5}",
    "{name: muon, lr: 0.1, normalize_weights: true, sgd_weight_decay: 0.01}",
    "{name: muon, nesterov: false, sgd_momentum: 0}",
    "{name: rmsprop, lr: 0.01, weight_decay: 0.1, momentum: 0.9, centered: true}",
};

// Returns the parameters after the golden problem's updates. A step with gradients that are not finite, which must be
// skipped, precedes each update whose number is in `overflows`.
torch::Tensor train(const std::string& yaml, const std::vector<int>& overflows, bool with_found_inf, int first_update_of_bias) {
  OptimizerProblem problem;
  const auto optimizer = make_optimizer(read_component(optimizer_registry(), yaml), problem.two_groups());
  const auto found_inf = [&](float value) { return with_found_inf ? std::optional(torch::full({}, value)) : std::nullopt; };
  for (int update = 0; update < OptimizerProblem::kUpdates; ++update) {
    for (const int overflow : overflows) {
      if (overflow != update) continue;
      const auto before = problem.values();
      problem.set_gradients(update, first_update_of_bias);
      problem.weight.mutable_grad()[0][0][0][0] = std::numeric_limits<double>::infinity();
      if (optimizer->needs_second_pass()) optimizer->perturb_parameters();
      problem.set_gradients(update, first_update_of_bias);
      problem.weight.mutable_grad()[1][0][0][0] = std::numeric_limits<double>::quiet_NaN();
      optimizer->step(0.1, found_inf(1));
      EXPECT_TRUE(torch::equal(problem.values(), before)) << yaml;
    }
    take_step(problem, *optimizer, update, 0.1, first_update_of_bias, found_inf(0));
  }
  return problem.values();
}

TEST(FoundInf, ZeroChangesNothing) {
  for (const auto& yaml : with_all_defaults(kSkippingOptimizers)) {
    EXPECT_TRUE(torch::equal(train(yaml, {}, /*with_found_inf=*/true, 0), train(yaml, {}, /*with_found_inf=*/false, 0))) << yaml;
  }
}

// A skipped step changes neither parameters nor state, even if it is the first step, one of two in a row, or the first with a gradient of
// the bias.
TEST(FoundInf, SkippedStepChangesNothing) {
  for (const auto& yaml : with_all_defaults(kSkippingOptimizers)) {
    for (const int first_update_of_bias : {0, 2}) {
      const auto straight = train(yaml, {}, /*with_found_inf=*/true, first_update_of_bias);
      for (const auto& overflows : std::vector<std::vector<int>>{{0}, {0, 0}, {2}, {0, 2, 2, 4}}) {
        EXPECT_TRUE(torch::equal(train(yaml, overflows, /*with_found_inf=*/true, first_update_of_bias), straight)) << yaml;
      }
    }
  }
}

}  // namespace
}  // namespace trainer::optim::test
