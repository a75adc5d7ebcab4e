// The optimizer of docs/extending.md.

#include <gtest/gtest.h>

#include "tests/examples/sign_sgd.cpp"
#include "tests/testing/shown_in_docs.h"
#include "tests/unit/optim/golden.h"

namespace trainer::optim::test {
namespace {

TEST(ExampleOptimizer, StepsAgainstTheSign) {
  OptimizerRegistry registry("optimizer");
  add_sign_sgd(registry);
  OptimizerProblem problem;
  const auto optimizer = registry.make(read_component(registry, "{name: sign_sgd, lr: 0.25}"), problem.two_groups());
  problem.set_gradients(0);
  const auto before = problem.weight.detach().clone();
  const auto expected = before - 0.25 * problem.weight.grad().sign();
  optimizer->step(optimizer->base_lr(), torch::ones({}));
  EXPECT_TRUE(torch::equal(problem.weight.detach(), before)) << "found_inf was set";
  optimizer->step(optimizer->base_lr(), torch::zeros({}));
  EXPECT_TRUE(torch::allclose(problem.weight.detach(), expected));
  const auto tree = optimizer->state(/*lr=*/0.1, {});
  optimizer->load_state(state::View(tree, "a.pt"));
}

TEST(ExampleOptimizer, EqualsTheCodeInTheDocs) { EXPECT_TRUE(trainer::testing::is_shown_in_docs("sign_sgd.cpp")); }

}  // namespace
}  // namespace trainer::optim::test
