#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include <stdexcept>
#include <tuple>

#include "trainer/amp.h"
#include "trainer/torch.h"

namespace trainer::amp {
namespace {

// The state that a guard may change: on or off, the type, and the nesting depth.
std::tuple<bool, c10::ScalarType, int> autocast_state() {
  const int nesting = at::autocast::increment_nesting() - 1;
  at::autocast::decrement_nesting();
  return {at::autocast::is_autocast_enabled(torch::kCPU), at::autocast::get_autocast_dtype(torch::kCPU), nesting};
}

TEST(AutocastGuard, ConvolutionRunsInTheChosenType) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3));
  const auto images = torch::rand({2, 3, 8, 8});
  torch::Tensor loss;
  {
    const AutocastGuard guard(torch::kCPU, torch::kBFloat16);
    const auto outputs = conv(images);
    EXPECT_EQ(outputs.scalar_type(), torch::kBFloat16);
    loss = torch::nn::functional::mse_loss(outputs, torch::zeros_like(outputs));
    EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  }
  EXPECT_EQ(conv(images).scalar_type(), torch::kFloat32);
  loss.backward();
  EXPECT_EQ(conv->weight.grad().scalar_type(), torch::kFloat32);
}

TEST(AutocastGuard, EmptyTypeChangesNothing) {
  const auto before = autocast_state();
  {
    const AutocastGuard guard(torch::kCPU, std::nullopt);
    EXPECT_EQ(autocast_state(), before);
  }
  EXPECT_EQ(autocast_state(), before);

  const AutocastGuard outer(torch::kCPU, torch::kBFloat16);
  const AutocastGuard inner(torch::kCPU, std::nullopt);
  EXPECT_TRUE(at::autocast::is_autocast_enabled(torch::kCPU));
}

TEST(AutocastGuard, RestoresTheOuterState) {
  const auto outside = autocast_state();
  ASSERT_FALSE(std::get<0>(outside));
  {
    const AutocastGuard outer(torch::kCPU, torch::kFloat16);
    const auto in_outer = autocast_state();
    EXPECT_TRUE(std::get<0>(in_outer));
    EXPECT_EQ(std::get<1>(in_outer), torch::kFloat16);
    {
      const AutocastGuard inner(torch::kCPU, torch::kBFloat16);
      EXPECT_EQ(std::get<1>(autocast_state()), torch::kBFloat16);
    }
    EXPECT_EQ(autocast_state(), in_outer);
  }
  EXPECT_EQ(autocast_state(), outside);
}

TEST(AutocastGuard, RestoresTheStateWhenAnExceptionPasses) {
  const auto before = autocast_state();
  try {
    const AutocastGuard outer(torch::kCPU, torch::kFloat16);
    const AutocastGuard inner(torch::kCPU, torch::kBFloat16);
    throw std::runtime_error("from within");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(autocast_state(), before);
  }
}

// Weights are cast once per outermost guard: an inner guard keeps the cache, and the next outermost guard uses the new weights.
TEST(AutocastGuard, CastWeightsLiveAsLongAsTheOutermostGuard) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(2, 1, 1).bias(false));
  const auto input = torch::ones({1, 2, 1, 1});
  const auto set_weight = [&](double value) {
    const torch::NoGradGuard no_grad;
    conv->weight.fill_(value);
  };
  set_weight(1);
  {
    const AutocastGuard outer(torch::kCPU, torch::kBFloat16);
    EXPECT_EQ(conv(input).item<float>(), 2);
    { const AutocastGuard inner(torch::kCPU, torch::kBFloat16); }
    set_weight(3);
    EXPECT_EQ(conv(input).item<float>(), 2);
  }
  const AutocastGuard next(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(conv(input).item<float>(), 6);
}

}  // namespace
}  // namespace trainer::amp
