#include <gtest/gtest.h>

#include "tests/unit/models/build_model.h"

namespace trainer::models::test {
namespace {

TEST(DemoLinear, IsOneLinearLayer) {
  const auto model = build("demo_linear");
  EXPECT_EQ(state_names(*model), (std::vector<std::string>{"fc.weight 10x10", "fc.bias 10"}));
  EXPECT_EQ(model->input_shape(), (std::vector<int64_t>{10}));
  const torch::Tensor x = torch::ones({4, 10});
  const auto weights = model->named_parameters();
  EXPECT_TRUE(at::allclose(model->forward(x), weights["fc.weight"].sum(1) + weights["fc.bias"]));
  EXPECT_LE(weights["fc.weight"].abs().max().item<double>(), 1.0 / std::sqrt(10.0) + 1e-6);
}

TEST(DemoLinear, UsesTheConfiguredSizes) {
  const auto model = build("demo_linear", "in_features: 3, out_features: 2");
  EXPECT_EQ(model->input_shape(), (std::vector<int64_t>{3}));
  EXPECT_EQ(model->forward(torch::zeros({5, 3})).sizes(), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(model->num_outputs(), 2);
}

TEST(DemoConv, IsAConvolutionAndALinearLayer) {
  const auto model = build("demo_conv");
  EXPECT_EQ(state_names(*model), (std::vector<std::string>{"conv.weight 16x3x3x3", "conv.bias 16", "fc.weight 10x14400", "fc.bias 10"}));
  EXPECT_EQ(model->input_shape(), (std::vector<int64_t>{3, 32, 32}));
  const auto weights = model->named_parameters();
  const torch::Tensor x = random_images(2);
  const torch::Tensor features = at::relu(at::conv2d(x, weights["conv.weight"], weights["conv.bias"]));
  EXPECT_TRUE(at::allclose(model->forward(x), at::linear(features.flatten(1), weights["fc.weight"], weights["fc.bias"]), 1e-4, 1e-5));
}

TEST(DemoConv, UsesTheConfiguredNumberOfClasses) {
  const auto model = build("demo_conv", "num_classes: 3");
  EXPECT_EQ(model->forward(random_images(2)).sizes(), (std::vector<int64_t>{2, 3}));
}

}  // namespace
}  // namespace trainer::models::test
