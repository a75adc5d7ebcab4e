#include <gtest/gtest.h>

#include "tests/unit/models/build_model.h"

namespace trainer::models::test {
namespace {

TEST(CifarResNet, HasThePapersParameterCounts) {
  // 0.27, 0.46, 0.66 and 0.85 million in table 6 of the paper.
  EXPECT_EQ(count_parameters(*build("resnet20")), 269722);
  EXPECT_EQ(count_parameters(*build("resnet32")), 464154);
  EXPECT_EQ(count_parameters(*build("resnet44")), 658586);
  EXPECT_EQ(count_parameters(*build("resnet56")), 853018);
}

TEST(CifarResNet, NamesItsLayersAsTorchvisionDoes) {
  const std::vector<std::string> names = state_names(*build("resnet20"));
  EXPECT_EQ(names.front(), "conv1.weight 16x3x3x3");
  EXPECT_EQ(names[1], "bn1.weight 16");
  EXPECT_EQ(names[6], "layer1.0.conv1.weight 16x16x3x3");
  EXPECT_EQ(names[names.size() - 2], "fc.weight 10x64");
  for (const char* name : {"layer2.0.conv1.weight 32x16x3x3", "layer3.0.conv1.weight 64x32x3x3", "layer3.2.bn2.num_batches_tracked ()"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
}

TEST(CifarResNet, ShortcutsSubsampleAndPadWithZeros) {
  const auto model = build("resnet20");
  model->eval();
  const torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    if (item.key().ends_with("bn2.weight")) item.value().zero_();
  }
  // The residual branches are zero, so the last block gives every fourth row and column of the stem's output, in the first 16 channels.
  const auto weights = model->named_parameters();
  const torch::Tensor x = random_images(2);
  const torch::Tensor stem = at::conv2d(x, weights["conv1.weight"], {}, 1, 1).div(std::sqrt(1.0 + 1e-5)).relu();
  const torch::Tensor kept = stem.slice(2, 0, 32, 4).slice(3, 0, 32, 4).mean({2, 3});
  const torch::Tensor expected = at::linear(at::constant_pad_nd(kept, {0, 48}), weights["fc.weight"], weights["fc.bias"]);
  EXPECT_TRUE(at::allclose(model->forward(x), expected, 1e-4, 1e-5));
}

TEST(CifarResNet, UsesTheConfiguredNumbersOfClassesAndChannels) {
  const auto model = build("resnet20", "num_classes: 100");
  EXPECT_EQ(model->input_shape(), (std::vector<int64_t>{3, -1, -1}));
  EXPECT_EQ(model->forward(random_images(2)).sizes(), (std::vector<int64_t>{2, 100}));
  const auto grey = build("resnet20", "in_channels: 1");
  EXPECT_EQ(grey->input_shape(), (std::vector<int64_t>{1, -1, -1}));
  EXPECT_EQ(grey->forward(random_images(2, 28).narrow(1, 0, 1)).sizes(), (std::vector<int64_t>{2, 10}));
}

TEST(CifarResNet, ConvolutionsStartWithTheStdOfFanOut) {
  const auto weights = build("resnet20")->named_parameters();
  const double std = std::sqrt(2.0 / (64 * 9));
  EXPECT_NEAR(weights["layer3.1.conv2.weight"].std().item<double>(), std, 0.02 * std);
}

}  // namespace
}  // namespace trainer::models::test
