#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "nn/batch_norm.h"
#include "nn/layers.h"
#include "trainer/nn.h"

namespace trainer::nn {
namespace {

TEST(LayerObserver, IsCalledForEveryKindOfLayerDuringItsLifetime) {
  Conv2d convolution(3, 4, 3);
  convolution.weight.data().fill_(1);
  BatchNorm2d norm(4);
  Dropout dropout(0.5, at::detail::createCPUGenerator());
  Linear linear(4, 2);
  linear.weight.data().fill_(1);
  linear.bias.data().fill_(1);
  const auto forward = [&](const torch::Tensor& x) {
    return linear.forward(dropout.forward(norm.forward(convolution.forward(x)).mean({2, 3})));
  };
  std::vector<std::pair<const torch::nn::Module*, torch::Tensor>> seen;
  torch::Tensor output;
  {
    const LayerObserver observer([&](const torch::nn::Module& layer, const torch::Tensor& tensor) { seen.emplace_back(&layer, tensor); });
    output = forward(torch::ones({2, 3, 5, 5}));
  }
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[0].first, &convolution);
  EXPECT_EQ(seen[1].first, &norm);
  EXPECT_EQ(seen[2].first, &dropout);
  EXPECT_EQ(seen[3].first, &linear);
  EXPECT_EQ(seen[0].second.sizes(), torch::IntArrayRef({2, 4, 3, 3}));
  EXPECT_TRUE(torch::equal(seen[3].second, output));
  forward(torch::ones({2, 3, 5, 5}));
  EXPECT_EQ(seen.size(), 4U);
}

}  // namespace
}  // namespace trainer::nn
