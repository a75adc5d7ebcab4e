#include <gtest/gtest.h>

#include "tests/unit/optim/golden.h"
#include "train/optim/optimizer.h"
#include "trainer/error.h"

namespace trainer::optim::test {
namespace {

const std::string kAllOptions = "{name: rmsprop, lr: 0.02, alpha: 0.8, eps: 0.001, weight_decay: 0.1, momentum: 0.9, centered: true}";

std::unique_ptr<Optimizer> rmsprop(const std::string& yaml, const OptimizerProblem& problem) {
  return make_optimizer(read_component(optimizer_registry(), yaml), problem.one_group());
}

double difference_of(const std::string& name, const std::string& yaml, OptimizerProblem problem, int first_update_of_bias = 0) {
  const auto optimizer = rmsprop(yaml, problem);
  return difference_from_golden(name, problem, *optimizer, first_update_of_bias);
}

TEST(Rmsprop, LikePython) {
  EXPECT_LT(difference_of("rmsprop", "{name: rmsprop}", {}), 1e-12);
  EXPECT_LT(difference_of("rmsprop_options", kAllOptions, {}), 1e-12);
}

TEST(Rmsprop, ParameterWhoseGradientAppearsLater) {
  EXPECT_LT(difference_of("rmsprop_late_gradient", "{name: rmsprop, momentum: 0.5}", {}, /*first_update_of_bias=*/2), 1e-12);
}

TEST(Rmsprop, ChannelsLastParameter) {
  for (const bool contiguous_gradients : {false, true}) {
    OptimizerProblem problem;
    problem.use_channels_last();
    problem.contiguous_gradients = contiguous_gradients;
    EXPECT_LT(difference_of("rmsprop_options", kAllOptions, problem), 1e-12);
    EXPECT_TRUE(problem.weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  }
}

TEST(Rmsprop, Float32) {
  OptimizerProblem problem;
  problem.use_float32();
  const double difference = difference_of("rmsprop_options", kAllOptions, problem);
  EXPECT_LT(difference, 1e-6);
  EXPECT_GT(difference, 1e-12);
}

TEST(Rmsprop, AlphaAndMomentumAreBelowOne) {
  EXPECT_THROW(read_component(optimizer_registry(), "{name: rmsprop, alpha: 1.0}"), UsageError);
  EXPECT_THROW(read_component(optimizer_registry(), "{name: rmsprop, momentum: 1.0}"), UsageError);
}

}  // namespace
}  // namespace trainer::optim::test
