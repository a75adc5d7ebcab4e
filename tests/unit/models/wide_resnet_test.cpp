#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/models/build_model.h"
#include "trainer/error.h"

namespace trainer::models::test {
namespace {

std::shared_ptr<Model> build_wide(int64_t depth, int64_t width, double dropout = 0.0, const BuildContext& context = make_context()) {
  return build("wide_resnet", fmt::format("depth: {}, width: {}, dropout: {}", depth, width, dropout), context);
}

TEST(WideResNet, HasThePapersParameterCounts) {
  // 36.5 and 8.9 million in table 4 of the paper; WRN-28-10 is the default.
  EXPECT_EQ(count_parameters(*build("wide_resnet")), 36479194);
  EXPECT_EQ(count_parameters(*build_wide(40, 4)), 8949210);
}

TEST(WideResNet, RefusesDepthsThatDoNotDivide) {
  for (const int64_t depth : {27, 12, 4}) EXPECT_THROW(build_wide(depth, 1), UsageError) << depth;
  try {
    build_wide(27, 1);
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("6n + 4"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("27"), std::string::npos) << error.what();
  }
}

TEST(WideResNet, IsThePapersPreActivationNetwork) {
  const auto model = build_wide(10, 2);
  model->eval();
  const auto weights = model->named_parameters();
  const auto norm = [](const torch::Tensor& x) { return x / std::sqrt(1.0 + 1e-5); };  // with fresh running statistics
  const auto block = [&](const torch::Tensor& x, const std::string& name, int64_t stride) {
    const torch::Tensor activated = at::relu(norm(x));
    torch::Tensor y = at::conv2d(activated, weights[name + ".conv1.weight"], {}, stride, 1);
    y = at::conv2d(at::relu(norm(y)), weights[name + ".conv2.weight"], {}, 1, 1);
    return y + at::conv2d(activated, weights[name + ".shortcut.weight"], {}, stride);
  };
  const torch::Tensor x = random_images(2);
  torch::Tensor y = at::conv2d(x, weights["conv1.weight"], {}, 1, 1);
  y = block(block(block(y, "layer1.0", 1), "layer2.0", 2), "layer3.0", 2);
  y = at::linear(at::relu(norm(y)).mean({2, 3}), weights["fc.weight"], weights["fc.bias"]);
  EXPECT_TRUE(at::allclose(model->forward(x), y, 1e-4, 1e-4));
}

TEST(WideResNet, LaterBlocksHaveIdentityShortcuts) {
  const std::vector<std::string> names = state_names(*build_wide(16, 1));
  // With width 1, the first stage keeps the number of channels.
  EXPECT_EQ(std::count(names.begin(), names.end(), "layer1.0.shortcut.weight 16x16x1x1"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "layer2.0.shortcut.weight 32x16x1x1"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "layer2.1.shortcut.weight 32x32x1x1"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "layer2.1.conv1.weight 32x32x3x3"), 1);
}

TEST(WideResNet, DropoutActsInTrainingAndFollowsItsGenerator) {
  BuildContext context = make_context();
  const auto model = build_wide(10, 1, 0.3, context);
  expect_dropout_follows_generator(*model, context);
}

}  // namespace
}  // namespace trainer::models::test
