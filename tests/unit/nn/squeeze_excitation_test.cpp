#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nn/layers.h"
#include "trainer/nn.h"
#include "trainer/torch.h"

namespace trainer::nn::test {
namespace {

struct SqueezeCase {
  std::vector<int64_t> shape;
  torch::ScalarType dtype;
  double bound;  // relative
};

SqueezeExcitation squeeze_excitation(int64_t channels, torch::ScalarType dtype, bool is_fused) {
  SqueezeExcitation layer(channels, 4, Activation::kSilu, Activation::kSigmoid);
  auto generator = at::detail::createCPUGenerator(1);
  for (const auto& parameter : layer.parameters()) normal_(parameter, 0, 0.5, generator);
  layer.to(dtype);
  if (is_fused) layer.use_fused_operator();
  return layer;
}

// The output and the gradients of the input, which also has another use, and of the parameters.
std::vector<torch::Tensor> pass(SqueezeExcitation& layer, const torch::Tensor& x) {
  const auto input = x.detach().requires_grad_();
  const auto activated = input * 1;
  const auto y = layer.forward(activated);
  const auto dy = at::randn(x.sizes(), at::detail::createCPUGenerator(3), torch::kFloat64).to(x.scalar_type());
  (y * dy + activated * 0.25).sum().backward();
  std::vector<torch::Tensor> results = {y.detach(), input.grad()};
  for (const auto& parameter : layer.parameters()) results.push_back(parameter.grad());
  return results;
}

torch::Tensor squeeze_input(at::IntArrayRef shape) {
  return at::randn(shape, at::detail::createCPUGenerator(2), torch::kFloat64).contiguous(torch::MemoryFormat::ChannelsLast);
}

double squeeze_distance(const torch::Tensor& actual, const torch::Tensor& expected) {
  return ((actual.to(torch::kFloat64) - expected).norm() / expected.norm()).item<double>();
}

TEST(SqueezeExcitation, FusedGradientsEqualThoseOfLibTorchsOperators) {
  for (const auto& c : {SqueezeCase{{3, 24, 9, 12}, torch::kFloat64, 1e-14}, SqueezeCase{{3, 24, 9, 12}, torch::kFloat32, 1e-6},
                        SqueezeCase{{1, 8, 1, 1}, torch::kFloat32, 1e-6}, SqueezeCase{{2, 58, 70, 65}, torch::kFloat32, 1e-6}}) {
    auto exact = squeeze_excitation(c.shape[1], torch::kFloat64, false);
    auto fused = squeeze_excitation(c.shape[1], c.dtype, true);
    const auto expected = pass(exact, squeeze_input(c.shape));
    const auto actual = pass(fused, squeeze_input(c.shape).to(c.dtype));
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_LT(squeeze_distance(actual[i], expected[i]), c.bound) << c10::str(c.shape) << i;
  }
}

TEST(SqueezeExcitation, UsesTheFusedOperatorOnlyWhereItCan) {
  const auto is_fused = [](SqueezeExcitation& layer, const torch::Tensor& x) {
    return layer.forward(x.detach().requires_grad_() * 1).grad_fn()->name().find("ScaledChannels") != std::string::npos;
  };
  auto plain = squeeze_excitation(24, torch::kFloat32, false);
  auto fused = squeeze_excitation(24, torch::kFloat32, true);
  auto odd = squeeze_excitation(21, torch::kFloat32, true);
  const auto x = squeeze_input({2, 24, 5, 7}).to(torch::kFloat32);
  EXPECT_TRUE(is_fused(fused, x));
  EXPECT_FALSE(is_fused(plain, x));
  EXPECT_FALSE(is_fused(fused, x.contiguous()));
  EXPECT_FALSE(is_fused(odd, squeeze_input({2, 21, 5, 7}).to(torch::kFloat32)));
  EXPECT_EQ(fused.forward(at::empty({0, 24, 5, 7}).requires_grad_()).numel(), 0);
}

}  // namespace
}  // namespace trainer::nn::test
