#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/optim/golden.h"
#include "train/optim/optimizer.h"
#include "trainer/error.h"

namespace trainer::optim::test {
namespace {

void expect_adam_like_python(const std::string& name, const std::string& yaml, int first_update_of_bias = 0) {
  OptimizerProblem problem;
  const auto optimizer = make_optimizer(read_component(optimizer_registry(), yaml), problem.one_group());
  EXPECT_LT(difference_from_golden(name, problem, *optimizer, first_update_of_bias), 1e-12) << name;
}

TEST(Adam, LikePython) {
  expect_adam_like_python("adam", "{name: adam, lr: 0.01}");
  expect_adam_like_python("adam_decay", "{name: adam, lr: 0.01, betas: [0.8, 0.95], eps: 0.001, weight_decay: 0.1}");
}

TEST(Adam, DefaultsOfAdamWDecay) { expect_adam_like_python("adamw", "{name: adamw, lr: 0.01}"); }

// The bias correction uses the number of each parameter's own steps.
TEST(Adam, ParameterWhoseGradientAppearsLater) {
  expect_adam_like_python("adam_late_gradient", "{name: adam, lr: 0.01}", /*first_update_of_bias=*/2);
  expect_adam_like_python("adamw_late_gradient", "{name: adamw, lr: 0.01, weight_decay: 0.1}", /*first_update_of_bias=*/2);
}

TEST(Adam, GroupWithoutDecay) {
  OptimizerProblem problem;
  const auto optimizer =
      make_optimizer(read_component(optimizer_registry(), "{name: adamw, lr: 0.01, weight_decay: 0.5}"), problem.two_groups());
  EXPECT_LT(difference_from_golden("adamw_two_groups", problem, *optimizer), 1e-12);
}

TEST(Adam, ChannelsLastParameter) {
  for (const bool contiguous_gradients : {false, true}) {
    OptimizerProblem problem;
    problem.use_channels_last();
    problem.contiguous_gradients = contiguous_gradients;
    const auto optimizer = make_optimizer(read_component(optimizer_registry(), "{name: adamw, lr: 0.01}"), problem.one_group());
    EXPECT_LT(difference_from_golden("adamw", problem, *optimizer), 1e-12);
    EXPECT_TRUE(problem.weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_EQ(problem.weight.grad().is_contiguous(), contiguous_gradients);
  }
}

TEST(Adam, Float32) {
  OptimizerProblem problem;
  problem.use_float32();
  const auto optimizer = make_optimizer(read_component(optimizer_registry(), "{name: adamw, lr: 0.01}"), problem.one_group());
  const double difference = difference_from_golden("adamw", problem, *optimizer);
  EXPECT_LT(difference, 1e-6);
  EXPECT_GT(difference, 1e-12);
}

TEST(Adam, BetasAreBelowOne) { EXPECT_THROW(read_component(optimizer_registry(), "{name: adam, betas: [0.9, 1.0]}"), UsageError); }

}  // namespace
}  // namespace trainer::optim::test
