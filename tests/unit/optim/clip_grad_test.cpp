#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/optim/optimizer.h"

namespace trainer::optim::test {
namespace {

torch::Tensor param_with_gradient(const std::vector<double>& gradient) {
  auto param = torch::zeros({static_cast<int64_t>(gradient.size())}, torch::kFloat64).requires_grad_();
  param.mutable_grad() = torch::tensor(gradient, torch::kFloat64);
  return param;
}

// Gradients (3, 0) and (4): their norm is 5.
TEST(ClipGradNorm, ScalesDownANormAboveTheLimit) {
  const std::vector<torch::Tensor> params{param_with_gradient({3, 0}), param_with_gradient({4})};
  const auto norm = clip_grad_norm(params, 2);
  EXPECT_EQ(norm.dim(), 0);
  EXPECT_DOUBLE_EQ(norm.item<double>(), 5);
  const double factor = 2 / (5 + 1e-6);
  EXPECT_DOUBLE_EQ(params[0].grad()[0].item<double>(), 3 * factor);
  EXPECT_EQ(params[0].grad()[1].item<double>(), 0);
  EXPECT_DOUBLE_EQ(params[1].grad()[0].item<double>(), 4 * factor);
}

TEST(ClipGradNorm, KeepsGradientsBelowTheLimit) {
  const std::vector<torch::Tensor> params{param_with_gradient({3, 0}), param_with_gradient({4})};
  EXPECT_DOUBLE_EQ(clip_grad_norm(params, 5.5).item<double>(), 5);
  EXPECT_EQ(params[0].grad()[0].item<double>(), 3);
  EXPECT_EQ(params[1].grad()[0].item<double>(), 4);
}

TEST(ClipGradNorm, SkipsParametersWithoutGradient) {
  const std::vector<torch::Tensor> params{torch::ones({2}, torch::kFloat64).requires_grad_(), param_with_gradient({10})};
  EXPECT_DOUBLE_EQ(clip_grad_norm(params, 1).item<double>(), 10);
  EXPECT_FALSE(params[0].grad().defined());
  EXPECT_NEAR(params[1].grad()[0].item<double>(), 1, 1e-6);
}

TEST(ClipGradNorm, IsZeroWithoutAnyGradient) {
  const auto norm = clip_grad_norm({torch::ones({2}, torch::kFloat64).requires_grad_()}, 1);
  EXPECT_EQ(norm.item<double>(), 0);
  EXPECT_EQ(norm.scalar_type(), torch::kFloat64);
  EXPECT_FALSE(norm.requires_grad());
  EXPECT_EQ(clip_grad_norm({}, 1).item<double>(), 0);
}

// A caller that does not check the norm continues with gradients that are NaN, as in PyTorch.
TEST(ClipGradNorm, ReturnsANormThatIsNotFinite) {
  const auto infinite = clip_grad_norm({param_with_gradient({std::numeric_limits<double>::infinity(), 1})}, 1);
  EXPECT_TRUE(std::isinf(infinite.item<double>()));
  const auto nan = clip_grad_norm({param_with_gradient({std::numeric_limits<double>::quiet_NaN()})}, 1);
  EXPECT_TRUE(std::isnan(nan.item<double>()));
}

}  // namespace
}  // namespace trainer::optim::test
