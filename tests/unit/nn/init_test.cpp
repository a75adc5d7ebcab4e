#include <gtest/gtest.h>

#include "trainer/nn.h"

namespace trainer::nn::test {
namespace {

at::Generator init_generator(uint64_t seed = 7) { return at::detail::createCPUGenerator(seed); }

TEST(Init, ConvolutionsHaveTheStdOfFanOut) {
  const torch::nn::ModuleList network(std::make_shared<Conv2d>(64, 256, 3));
  init_convolutions_(*network, init_generator());
  const auto weight = network->parameters()[0].detach();
  const double std = std::sqrt(2.0 / (256 * 9));
  EXPECT_NEAR(weight.std().item<double>(), std, 0.01 * std);
  EXPECT_NEAR(weight.mean().item<double>(), 0.0, 0.01 * std);
  // The fraction of a normal distribution beyond two standard deviations.
  EXPECT_NEAR((weight.abs() > 2 * std).to(torch::kFloat64).mean().item<double>(), 0.0455, 0.003);
}

TEST(Init, TruncatedNormalHasNoOutliers) {
  const torch::Tensor weight = torch::empty({20'000'000});
  truncated_normal_(weight, 0.02, init_generator());
  EXPECT_NEAR(weight.std().item<double>(), 0.02, 0.0001);
  EXPECT_LT(weight.abs().max().item<double>(), 6 * 0.02);
  truncated_normal_(weight, 1, init_generator());
  EXPECT_LE(weight.abs().max().item<double>(), 2);
  // The standard deviation of a standard normal distribution that is truncated to -2 to 2.
  EXPECT_NEAR(weight.std().item<double>(), 0.8796, 0.001);
}

TEST(Init, DefaultUniformFillsItsInterval) {
  const torch::Tensor weight = torch::empty({128, 32, 3, 3});
  const torch::Tensor bias = torch::empty({4096});
  default_uniform_(weight, bias, init_generator());
  const double bound = 1.0 / std::sqrt(32 * 9);
  for (const torch::Tensor& tensor : {weight, bias}) {
    EXPECT_LE(tensor.abs().max().item<double>(), bound * (1 + 1e-6));
    EXPECT_GT(tensor.max().item<double>(), 0.99 * bound);
    EXPECT_LT(tensor.min().item<double>(), -0.99 * bound);
    EXPECT_NEAR(tensor.std().item<double>(), bound / std::sqrt(3.0), 0.03 * bound);
  }
  EXPECT_NO_THROW(default_uniform_(weight, {}, init_generator()));
}

TEST(Init, DefaultUniformOfALinearLayerUsesFanIn) {
  const torch::Tensor weight = torch::empty({1000, 64});
  default_uniform_(weight, {}, init_generator());
  EXPECT_NEAR(weight.abs().max().item<double>(), 0.125, 1e-4);
}

TEST(Init, NormalHasTheGivenMeanAndStd) {
  const torch::Tensor tensor = torch::empty({100000});
  normal_(tensor, 3.0, 0.5, init_generator());
  EXPECT_NEAR(tensor.mean().item<double>(), 3.0, 0.01);
  EXPECT_NEAR(tensor.std().item<double>(), 0.5, 0.01);
}

TEST(Init, ValuesAreDrawnFromTheGivenGenerator) {
  const auto draw = [](uint64_t seed) {
    const at::Generator generator = init_generator(seed);
    const torch::Tensor weight = torch::empty({8, 4, 3, 3});
    const torch::Tensor bias = torch::empty({8});
    normal_(weight, 0.0, 1.0, generator);
    const torch::Tensor first = weight.clone();
    default_uniform_(weight, bias, generator);
    return at::cat({first.flatten(), weight.flatten(), bias});
  };
  EXPECT_TRUE(at::equal(draw(1), draw(1)));
  EXPECT_FALSE(at::equal(draw(1), draw(2)));
}

TEST(Init, TheProcessWideGeneratorIsNotUsed) {
  const torch::Tensor before = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  const torch::Tensor weight = torch::empty({8, 4, 3, 3}).requires_grad_();
  default_uniform_(weight, {}, init_generator());
  normal_(weight, 0.0, 1.0, init_generator());
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(torch::kCPU).get_state(), before));
}

TEST(Init, ConvolutionsAreFilledInTheOrderOfTheModules) {
  torch::nn::ModuleList network(std::make_shared<Conv2d>(3, 8, 3, Conv2dOptions{.bias = true}), std::make_shared<Linear>(4, 4),
                                torch::nn::ModuleList(std::make_shared<Conv2d>(8, 4, 1)));
  const torch::Tensor linear = network->parameters()[2].detach().fill_(5.0).clone();
  init_convolutions_(*network, init_generator());

  const at::Generator generator = init_generator();
  const torch::Tensor first = torch::empty({8, 3, 3, 3});
  const torch::Tensor second = torch::empty({4, 8, 1, 1});
  normal_(first, 0.0, std::sqrt(2.0 / (8 * 9)), generator);
  normal_(second, 0.0, std::sqrt(2.0 / 4), generator);
  const auto parameters = network->named_parameters();
  EXPECT_TRUE(at::equal(parameters["0.weight"], first));
  EXPECT_TRUE(at::equal(parameters["0.bias"], torch::zeros(8)));
  EXPECT_TRUE(at::equal(parameters["2.0.weight"], second));
  EXPECT_TRUE(at::equal(parameters["1.weight"], linear));
}

}  // namespace
}  // namespace trainer::nn::test
