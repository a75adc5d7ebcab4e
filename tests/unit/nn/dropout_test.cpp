#include <gtest/gtest.h>

#include "trainer/nn.h"

namespace trainer::nn::test {
namespace {

TEST(Dropout, KeepsTheExpectedFractionAndScalesIt) {
  const torch::Tensor x = torch::full({200, 500}, 3.0);
  Dropout dropout(0.25, at::detail::createCPUGenerator(1));
  const torch::Tensor y = dropout.forward(x);
  const torch::Tensor kept = y != 0;
  EXPECT_NEAR(kept.to(torch::kFloat64).mean().item<double>(), 0.75, 0.01);
  EXPECT_TRUE(at::allclose(y.masked_select(kept), torch::tensor(4.0F)));
}

TEST(Dropout, GradientPassesThroughTheSameMask) {
  const torch::Tensor x = torch::ones({64, 64}).requires_grad_();
  Dropout dropout(0.5, at::detail::createCPUGenerator(1));
  const torch::Tensor y = dropout.forward(x);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), y.detach()));
}

TEST(Dropout, MaskIsAFunctionOfTheGeneratorsSeed) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  Dropout dropout(0.5, generator);
  const torch::Tensor x = torch::ones({64, 64});
  const torch::Tensor process_wide = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  const torch::Tensor first = dropout.forward(x);
  const torch::Tensor second = dropout.forward(x);
  EXPECT_FALSE(at::equal(first, second));
  generator.set_current_seed(1);
  EXPECT_TRUE(at::equal(dropout.forward(x), first));
  EXPECT_TRUE(at::equal(dropout.forward(x), second));
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(torch::kCPU).get_state(), process_wide));
}

TEST(Dropout, IsTheIdentityInEvalModeAndForZero) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const torch::Tensor state = generator.get_state();
  const torch::Tensor x = torch::ones({8, 8});
  Dropout dropout(0.5, generator);
  dropout.eval();
  EXPECT_TRUE(dropout.forward(x).is_same(x));
  EXPECT_TRUE(Dropout(0.0, generator).forward(x).is_same(x));
  EXPECT_TRUE(at::equal(generator.get_state(), state));
}

TEST(DropPath, DropsWholeSamplesAndScalesTheOthers) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  DropPath layer(0.25, generator);
  const torch::Tensor x = torch::full({2000, 3, 2, 2}, 3.0);
  const torch::Tensor y = layer.forward(x);
  const torch::Tensor sums = y.sum({1, 2, 3});
  const torch::Tensor kept = sums != 0;
  EXPECT_NEAR(kept.to(torch::kFloat64).mean().item<double>(), 0.75, 0.05);
  EXPECT_TRUE(at::allclose(sums.masked_select(kept), torch::tensor(4.0F * 12)));
  generator.set_current_seed(1);
  EXPECT_TRUE(at::equal(layer.forward(x), y));
  layer.eval();
  EXPECT_TRUE(layer.forward(x).is_same(x));
  EXPECT_TRUE(DropPath(0.0, generator).forward(x).is_same(x));
}

TEST(Dropout, KeepsTypeAndMemoryFormat) {
  const torch::Tensor x = torch::ones({2, 8, 4, 4}, torch::kBFloat16).contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor y = Dropout(0.5, at::detail::createCPUGenerator(1)).forward(x);
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(y.is_contiguous(torch::MemoryFormat::ChannelsLast));
}

TEST(Dropout, RefusesProbabilitiesOutsideItsRange) {
  EXPECT_THROW(Dropout(1.0, at::detail::createCPUGenerator(1)), c10::Error);
  EXPECT_THROW(Dropout(-0.1, at::detail::createCPUGenerator(1)), c10::Error);
}

}  // namespace
}  // namespace trainer::nn::test
