#include "nn/layers.h"

#include <gtest/gtest.h>

namespace trainer::nn::test {
namespace {

// The output of LibTorch's layer with the same weights.
template <class Theirs, class Ours>
void expect_same_output(Theirs& theirs, Ours& ours, const torch::Tensor& x) {
  const torch::NoGradGuard no_grad;
  ours.weight.copy_(theirs.weight);
  if (theirs.bias.defined()) ours.bias.copy_(theirs.bias);
  EXPECT_TRUE(at::equal(ours.forward(x), theirs.forward(x)));
}

TEST(Layers, ConvolutionEqualsLibTorchs) {
  const torch::Tensor x = torch::randn({2, 3, 9, 9});
  torch::nn::Conv2d theirs(torch::nn::Conv2dOptions(3, 6, 5).stride(2).padding(1));
  Conv2d ours(3, 6, 5, {.stride = 2, .padding = 1, .bias = true});
  EXPECT_EQ(ours.named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
  expect_same_output(*theirs, ours, x);

  torch::nn::Conv2d theirs_bare(torch::nn::Conv2dOptions(3, 6, 3).bias(false));
  Conv2d ours_bare(3, 6, 3);
  EXPECT_EQ(ours_bare.named_parameters().keys(), (std::vector<std::string>{"weight"}));
  expect_same_output(*theirs_bare, ours_bare, x);
}

TEST(Layers, LinearEqualsLibTorchs) {
  torch::nn::Linear theirs(7, 4);
  Linear ours(7, 4);
  EXPECT_EQ(ours.named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
  expect_same_output(*theirs, ours, torch::randn({3, 7}));
}

TEST(Layers, ConvolutionsOfResidualNetworksKeepOrHalveTheSize) {
  const torch::Tensor x = torch::zeros({1, 2, 8, 8});
  EXPECT_EQ(conv3x3(2, 5)->forward(x).sizes(), (std::vector<int64_t>{1, 5, 8, 8}));
  EXPECT_EQ(conv3x3(2, 5, 2)->forward(x).sizes(), (std::vector<int64_t>{1, 5, 4, 4}));
  EXPECT_EQ(conv1x1(2, 5)->forward(x).sizes(), (std::vector<int64_t>{1, 5, 8, 8}));
  EXPECT_EQ(conv1x1(2, 5, 2)->forward(x).sizes(), (std::vector<int64_t>{1, 5, 4, 4}));
  EXPECT_EQ(conv3x3(2, 5)->parameters().size(), 1U);
}

TEST(Layers, ConstructorsDrawNoRandomNumbers) {
  const torch::Tensor before = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  const Conv2d convolution(3, 6, 5, {.bias = true});
  const Linear linear(7, 4);
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(torch::kCPU).get_state(), before));
}

}  // namespace
}  // namespace trainer::nn::test
