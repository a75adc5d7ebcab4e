#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/optim/golden.h"
#include "train/optim/optimizer.h"
#include "trainer/error.h"

namespace trainer::optim::test {
namespace {

std::unique_ptr<Optimizer> sgd(const std::string& keys, std::vector<ParamGroup> groups) {
  return make_optimizer(read_component(optimizer_registry(), "{name: sgd, " + keys + "}"), std::move(groups));
}

void expect_sgd_like_python(const std::string& name, const std::string& keys, int first_update_of_bias = 0) {
  OptimizerProblem problem;
  const auto optimizer = sgd(keys, problem.one_group());
  EXPECT_LT(difference_from_golden(name, problem, *optimizer, first_update_of_bias), 1e-12) << name;
}

TEST(Sgd, LikePython) {
  expect_sgd_like_python("sgd", "lr: 0.1");
  expect_sgd_like_python("sgd_decay", "lr: 0.1, weight_decay: 0.02");
  expect_sgd_like_python("sgd_momentum", "lr: 0.1, momentum: 0.9, dampening: 0.25, weight_decay: 0.02");
  expect_sgd_like_python("sgd_nesterov", "lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.02");
}

// The first momentum buffer is the undampened gradient also when the other parameters are past their first step.
TEST(Sgd, ParameterWhoseGradientAppearsLater) {
  expect_sgd_like_python("sgd_late_gradient", "lr: 0.1, momentum: 0.9, dampening: 0.5", /*first_update_of_bias=*/2);
}

TEST(Sgd, GroupWithoutDecay) {
  OptimizerProblem problem;
  const auto optimizer = sgd("lr: 0.1, momentum: 0.9, weight_decay: 0.125", problem.two_groups());
  EXPECT_LT(difference_from_golden("sgd_two_groups", problem, *optimizer), 1e-12);
}

TEST(Sgd, ChannelsLastParameter) {
  for (const bool contiguous_gradients : {false, true}) {
    OptimizerProblem problem;
    problem.use_channels_last();
    problem.contiguous_gradients = contiguous_gradients;
    const auto optimizer = sgd("lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.02", problem.one_group());
    EXPECT_LT(difference_from_golden("sgd_nesterov", problem, *optimizer), 1e-12);
    EXPECT_TRUE(problem.weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_EQ(problem.weight.grad().is_contiguous(), contiguous_gradients);
  }
}

TEST(Sgd, Float32) {
  OptimizerProblem problem;
  problem.use_float32();
  const auto optimizer = sgd("lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.02", problem.one_group());
  const double difference = difference_from_golden("sgd_nesterov", problem, *optimizer);
  EXPECT_LT(difference, 1e-6);
  EXPECT_GT(difference, 1e-12);
}

}  // namespace
}  // namespace trainer::optim::test
