#include "nn/convolution/convolution.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "tests/testing/processors.h"
#include "trainer/torch.h"

namespace trainer::nn::convolution {
namespace {

struct Case {
  int64_t images, height, width, in, out;
};

// Cases with inner tiles and partial tiles, blocks of columns of each width, and channels for which the sums are divided by thread and by
// position.
constexpr Case kCases[] = {{2, 8, 8, 16, 16}, {3, 5, 7, 8, 24}, {1, 1, 1, 8, 8},     {1, 4, 4, 32, 48},  {2, 9, 3, 40, 8},
                           {2, 1, 6, 16, 32}, {0, 8, 8, 16, 8}, {1, 4, 4, 256, 256}, {5, 32, 32, 16, 16}};

struct Result {
  torch::Tensor y, dx, dw;
};

template <class Convolve>
Result differentiate(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& dy, const Convolve& convolve) {
  const auto input = x.detach().clone().requires_grad_();
  const auto parameter = weight.detach().clone().requires_grad_();
  const auto y = convolve(input, parameter);
  y.backward(dy);
  return {y.detach(), input.grad(), parameter.grad()};
}

// Root of the mean squared difference, relative to the root of the mean square.
double distance(const torch::Tensor& a, const torch::Tensor& b) {
  if (b.numel() == 0) return 0;
  const auto exact = b.to(torch::kFloat64);
  return ((a.to(torch::kFloat64) - exact).norm() / exact.norm().clamp_min(1e-300)).item<double>();
}

torch::Tensor convolve_directly(const torch::Tensor& x, const torch::Tensor& weight) { return at::conv2d(x, weight, {}, 1, 1); }

template <class Convolve>
double largest_distance(const Case& c, torch::ScalarType dtype, const Convolve& convolve) {
  torch::manual_seed(1);
  const auto x = torch::randn({c.images, c.in, c.height, c.width}, torch::kFloat64).to(dtype);
  const auto weight = torch::randn({c.out, c.in, 3, 3}, torch::kFloat64).to(dtype);
  const auto dy = torch::randn({c.images, c.out, c.height, c.width}, torch::kFloat64).to(dtype);
  const auto expected = differentiate(x.to(torch::kFloat64), weight.to(torch::kFloat64), dy.to(torch::kFloat64), convolve_directly);
  const auto actual = differentiate(x, weight, dy, convolve);
  EXPECT_EQ(actual.y.sizes(), expected.y.sizes());
  return std::max({distance(actual.y, expected.y), distance(actual.dx, expected.dx), distance(actual.dw, expected.dw)});
}

double largest_distance(const Case& c, torch::ScalarType dtype, Tile tile) {
  return largest_distance(c, dtype, [&](const auto& input, const auto& parameter) { return convolve(input, parameter, {}, tile); });
}

TEST(Winograd, EqualsTheDirectAlgorithmInFloat64) {
  for (const auto tile : {Tile::k2, Tile::k4}) {
    for (const auto& c : kCases) EXPECT_LT(largest_distance(c, torch::kFloat64, tile), 1e-13) << c.in << " " << c.out << " " << c.height;
  }
}

// Also tests a strided convolution.
TEST(Winograd, OtherGradientsAreTheSameWithoutThoseOfFrozenParameters) {
  torch::manual_seed(1);
  const auto x = torch::randn({2, 16, 8, 8});
  const auto weight = torch::randn({24, 16, 3, 3});
  const auto bias = torch::randn({24});
  const auto gradients = [&](int64_t stride, bool trains_weight, bool trains_bias) {
    const auto input = x.clone().requires_grad_();
    const auto w = weight.clone().requires_grad_(trains_weight);
    const auto b = bias.clone().requires_grad_(trains_bias);
    const auto y = stride == 1 ? convolve(input, w, b, Tile::k4) : convolve_strided(input, w, b, stride);
    y.sum().backward();
    return std::vector<torch::Tensor>{input.grad(), w.grad(), b.grad()};
  };
  for (const int64_t stride : {1, 2}) {
    const auto expected = gradients(stride, true, true);
    for (const auto& [trains_weight, trains_bias] : {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
      const auto actual = gradients(stride, trains_weight, trains_bias);
      EXPECT_TRUE(at::equal(actual[0], expected[0]));
      EXPECT_TRUE(trains_weight ? at::equal(actual[1], expected[1]) : !actual[1].defined()) << stride;
      EXPECT_TRUE(trains_bias ? at::equal(actual[2], expected[2]) : !actual[2].defined()) << stride;
    }
  }
}

TEST(Winograd, RoundsLittleInFloat32) {
  // The errors of F(2×2) are like those of the direct algorithm, those of F(4×4) three to six times as large. A weight's gradient is a
  // sum of many values, which loses digits with the direct algorithm too, and more with fewer threads: with one, F(2×2) has 1.11e-6 on
  // every processor, and the direct algorithm 1.27e-6 on x86-64 but less than 0.92e-6 on ARM, where LibTorch adds in another order.
  for (const auto& c : kCases) {
    const double direct = largest_distance(c, torch::kFloat32, convolve_directly);
    EXPECT_LT(largest_distance(c, torch::kFloat32, Tile::k2), std::max(1.2e-6, 1.2 * direct)) << c.in << " " << c.out << " " << c.height;
    EXPECT_LT(largest_distance(c, torch::kFloat32, Tile::k4), std::max(6e-6, 6 * direct)) << c.in << " " << c.out << " " << c.height;
  }
}

// Returns the largest distance of the results for bfloat16 values from those for the same values in float32. Only the rounding of the
// results to bfloat16 may cause it.
double largest_bfloat16_distance(const Case& c, Tile tile) {
  torch::manual_seed(1);
  const auto x = torch::randn({c.images, c.in, c.height, c.width}).to(torch::kBFloat16);
  const auto weight = torch::randn({c.out, c.in, 3, 3});
  const auto dy = torch::randn({c.images, c.out, c.height, c.width}).to(torch::kBFloat16);
  const auto convolve_by_tiles = [&](const auto& input, const auto& parameter) { return convolve(input, parameter, {}, tile); };
  const auto actual = differentiate(x, weight, dy, convolve_by_tiles);
  const auto expected = differentiate(x.to(torch::kFloat32), weight, dy.to(torch::kFloat32), convolve_by_tiles);
  EXPECT_EQ(actual.y.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(actual.dx.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(at::equal(actual.dw, expected.dw));
  EXPECT_TRUE(at::equal(actual.y, expected.y.to(torch::kBFloat16)));
  EXPECT_TRUE(at::equal(actual.dx, expected.dx.to(torch::kBFloat16)));
  return std::max(distance(actual.y, expected.y), distance(actual.dx, expected.dx));
}

TEST(Winograd, ComputesBFloat16InFloat32) {
  for (const auto tile : {Tile::k2, Tile::k4}) {
    // The bound is half a unit in the last place of 8 bits.
    for (const auto& c : kCases) EXPECT_LT(largest_bfloat16_distance(c, tile), 1.0 / 256) << c.in << " " << c.out << " " << c.height;
  }
}

TEST(Winograd, IsExactWithTheInstructionsOfEachKindOfProcessor) {
  testing::for_each_kind_of_processor([](const char* name) {
    for (const auto tile : {Tile::k2, Tile::k4}) {
      EXPECT_LT(largest_distance(kCases[1], torch::kFloat64, tile), 1e-13) << name;
      EXPECT_LT(largest_distance(kCases[3], torch::kFloat32, tile), 6e-6) << name;
    }
  });
}

TEST(Winograd, IsTheSameInEachCall) {
  for (const auto tile : {Tile::k2, Tile::k4}) {
    for (const int64_t channels : {16, 256}) {
      const auto x = torch::randn({3, channels, 9, 10});
      const auto weight = torch::randn({channels, channels, 3, 3});
      const auto dy = torch::randn({3, channels, 9, 10});
      const auto run = [&] {
        return differentiate(x, weight, dy, [&](const auto& input, const auto& parameter) { return convolve(input, parameter, {}, tile); });
      };
      const auto first = run();
      for (int i = 0; i < 3; ++i) {
        const auto again = run();
        EXPECT_TRUE(again.y.equal(first.y));
        EXPECT_TRUE(again.dx.equal(first.dx));
        EXPECT_TRUE(again.dw.equal(first.dw));
      }
    }
  }
}

TEST(Winograd, AddsABias) {
  torch::manual_seed(1);
  const auto x = torch::randn({2, 16, 5, 6}, torch::kFloat64);
  const auto weight = torch::randn({24, 16, 3, 3}, torch::kFloat64);
  const auto dy = torch::randn({2, 24, 5, 6}, torch::kFloat64);
  for (const auto tile : {Tile::k2, Tile::k4}) {
    const auto bias = torch::randn({24}, torch::kFloat64).requires_grad_();
    const auto y = convolve(x, weight, bias, tile);
    EXPECT_LT(distance(y.detach(), at::conv2d(x, weight, bias.detach(), 1, 1)), 1e-13);
    y.backward(dy);
    EXPECT_LT(distance(bias.grad(), dy.sum({0, 2, 3})), 1e-13);
  }
}

TEST(Winograd, TheTileDependsOnTheLayerOnly) {
  const auto choose = [](int64_t images, int64_t channels, int64_t side, Tile largest) {
    return fastest_tile(torch::zeros({images, channels, side, side}), torch::zeros({channels, channels, 3, 3}), largest);
  };
  EXPECT_EQ(choose(2, 16, 32, Tile::k2), Tile::k2);
  EXPECT_EQ(choose(128, 64, 32, Tile::k4), Tile::k4);
  EXPECT_EQ(choose(1, 64, 32, Tile::k4), Tile::k4);
  EXPECT_EQ(choose(2, 8, 32, Tile::k2), std::nullopt);
  EXPECT_EQ(choose(2, 10, 32, Tile::k4), std::nullopt);
  EXPECT_EQ(choose(2, 512, 4, Tile::k4), Tile::k2) << "the transformed weights are too large";
  EXPECT_EQ(choose(2, 64, 2, Tile::k4), Tile::k2) << "a tile would be larger than the image";
  EXPECT_EQ(choose(2, 64, 1, Tile::k4), std::nullopt);
  const auto choose_for_bfloat16 = [](int64_t channels, int64_t side, Tile largest) {
    return fastest_tile(torch::zeros({2, channels, side, side}, torch::kBFloat16), torch::zeros({channels, channels, 3, 3}), largest);
  };
  EXPECT_EQ(choose_for_bfloat16(64, 32, Tile::k4), Tile::k4);
  EXPECT_EQ(choose_for_bfloat16(64, 32, Tile::k2), std::nullopt);
  EXPECT_EQ(choose_for_bfloat16(32, 32, Tile::k4), std::nullopt);
  EXPECT_EQ(choose_for_bfloat16(512, 32, Tile::k4), std::nullopt);
  EXPECT_EQ(choose_for_bfloat16(64, 7, Tile::k4), std::nullopt) << "a quarter of the tiles' outputs would be outside";
}

TEST(Winograd, TakesOnlyWhatItCanCompute) {
  const auto x = torch::zeros({1, 8, 4, 4});
  EXPECT_TRUE(supports(x, torch::zeros({16, 8, 3, 3})));
  EXPECT_FALSE(supports(x, torch::zeros({16, 8, 1, 1})));
  EXPECT_FALSE(supports(x, torch::zeros({10, 8, 3, 3})));
  EXPECT_FALSE(supports(torch::zeros({1, 3, 4, 4}), torch::zeros({16, 3, 3, 3})));
  EXPECT_FALSE(supports(x.to(torch::kBFloat16), torch::zeros({16, 8, 3, 3}, torch::kBFloat16)));
  EXPECT_TRUE(supports(x.to(torch::kBFloat16), torch::zeros({16, 8, 3, 3})));
}

struct StridedCase {
  int64_t images, height, width, in, out, stride;
};

// Odd and even sizes, kernels that extend beyond each edge, images smaller than a kernel, and parts with kPartChannels and with fewer
// output channels.
constexpr StridedCase kStridedCases[] = {{2, 8, 8, 16, 32, 2},  {3, 7, 9, 8, 24, 2}, {1, 1, 1, 8, 8, 2},  {2, 2, 1, 8, 5, 2},
                                         {2, 9, 11, 40, 50, 3}, {0, 8, 8, 16, 8, 2}, {1, 4, 4, 64, 3, 2}, {9, 16, 16, 32, 64, 2}};

double largest_distance(const StridedCase& c, torch::ScalarType dtype) {
  torch::manual_seed(1);
  const auto x = torch::randn({c.images, c.in, c.height, c.width}, torch::kFloat64).to(dtype);
  const auto weight = torch::randn({c.out, c.in, 3, 3}, torch::kFloat64).to(dtype);
  const auto direct = [&](const auto& input, const auto& parameter) { return at::conv2d(input, parameter, {}, c.stride, 1); };
  const auto dy = torch::randn_like(direct(x, weight), torch::kFloat64).to(dtype);
  const auto expected = differentiate(x.to(torch::kFloat64), weight.to(torch::kFloat64), dy.to(torch::kFloat64), direct);
  const auto actual = differentiate(
      x, weight, dy, [&](const auto& input, const auto& parameter) { return convolve_strided(input, parameter, {}, c.stride); });
  EXPECT_EQ(actual.y.sizes(), expected.y.sizes());
  return std::max({distance(actual.y, expected.y), distance(actual.dx, expected.dx), distance(actual.dw, expected.dw)});
}

TEST(StridedConvolution, EqualsLibTorchsOperator) {
  for (const auto& c : kStridedCases) {
    EXPECT_LT(largest_distance(c, torch::kFloat64), 1e-13) << c.in << " " << c.out << " " << c.height;
    EXPECT_LT(largest_distance(c, torch::kFloat32), 1e-6) << c.in << " " << c.out << " " << c.height;
  }
}

TEST(StridedConvolution, IsExactWithTheInstructionsOfEachKindOfProcessor) {
  testing::for_each_kind_of_processor(
      [](const char* name) { EXPECT_LT(largest_distance(kStridedCases[4], torch::kFloat64), 1e-13) << name; });
}

TEST(StridedConvolution, TheBitsDoNotDependOnTheNumberOfThreads) {
  const auto x = torch::randn({5, 32, 9, 10});
  const auto weight = torch::randn({64, 32, 3, 3});
  const auto dy = torch::randn({5, 64, 5, 5});
  const int num_threads = at::get_num_threads();
  std::vector<torch::Tensor> gradients;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    const auto run = [](const auto& input, const auto& parameter) { return convolve_strided(input, parameter, {}, 2); };
    gradients.push_back(differentiate(x, weight, dy, run).dw);
  }
  at::set_num_threads(num_threads);
  EXPECT_TRUE(gradients[1].equal(gradients[0]));
  EXPECT_TRUE(gradients[2].equal(gradients[0]));
}

TEST(StridedConvolution, AddsABias) {
  torch::manual_seed(1);
  const auto x = torch::randn({2, 16, 5, 6}, torch::kFloat64);
  const auto weight = torch::randn({24, 16, 3, 3}, torch::kFloat64);
  const auto bias = torch::randn({24}, torch::kFloat64).requires_grad_();
  const auto y = convolve_strided(x, weight, bias, 2);
  EXPECT_LT(distance(y.detach(), at::conv2d(x, weight, bias.detach(), 2, 1)), 1e-13);
  const auto dy = torch::randn_like(y);
  y.backward(dy);
  EXPECT_LT(distance(bias.grad(), dy.sum({0, 2, 3})), 1e-13);
}

TEST(StridedConvolution, TakesOnlyWhatItCanCompute) {
  const auto x = torch::zeros({1, 8, 4, 4});
  EXPECT_TRUE(supports(x, torch::zeros({5, 8, 3, 3}), 2));
  EXPECT_FALSE(supports(x, torch::zeros({16, 8, 1, 1}), 2));
  EXPECT_FALSE(supports(torch::zeros({1, 3, 4, 4}), torch::zeros({16, 3, 3, 3}), 2));
  EXPECT_FALSE(supports(x.to(torch::kBFloat16), torch::zeros({16, 8, 3, 3}, torch::kBFloat16), 2));
}

struct DepthwiseCase {
  int64_t images, height, width, channels, kernel, stride, padding;
};

// Every kernel and stride; paddings from none to all but one; images smaller than the kernel and as small as one pixel; odd sizes; rows
// with and without columns for which the whole kernel is inside; an empty batch.
std::vector<DepthwiseCase> depthwise_cases() {
  std::vector<DepthwiseCase> cases{
      {0, 8, 8, 16, 3, 1, 1}, {3, 40, 33, 24, 3, 1, 1}, {3, 40, 33, 24, 5, 2, 2}, {2, 9, 12, 58, 3, 1, 1}, {2, 9, 12, 30, 5, 2, 2}};
  for (const int64_t kernel : {3, 5, 7}) {
    for (const int64_t stride : {1, 2}) {
      for (const int64_t padding : {int64_t{0}, kernel / 2, kernel - 1}) {
        for (const auto& [height, width] : {std::pair<int64_t, int64_t>(9, 12), {8, 8}, {1, 1}, {2, 7}, {7, 3}}) {
          if (std::min(height, width) + 2 * padding >= kernel) cases.push_back({2, height, width, 40, kernel, stride, padding});
        }
      }
    }
  }
  return cases;
}

struct DepthwiseTensors {
  torch::Tensor x, weight, dy;
};

torch::Tensor convolve_directly(const DepthwiseCase& c, const torch::Tensor& x, const torch::Tensor& weight) {
  return at::conv2d(x, weight, {}, c.stride, c.padding, 1, c.channels);
}

DepthwiseTensors make_tensors(const DepthwiseCase& c) {
  torch::manual_seed(1);
  const auto x = torch::randn({c.images, c.channels, c.height, c.width}, torch::kFloat64).contiguous(torch::MemoryFormat::ChannelsLast);
  const auto weight = torch::randn({c.channels, 1, c.kernel, c.kernel}, torch::kFloat64);
  return {x, weight, torch::randn_like(convolve_directly(c, x, weight))};
}

double largest_distance(const DepthwiseCase& c, torch::ScalarType dtype) {
  const auto tensors = make_tensors(c);
  const auto x = tensors.x.to(dtype), weight = tensors.weight.to(dtype), dy = tensors.dy.to(dtype);
  EXPECT_TRUE(supports_depthwise(x, weight, c.stride, c.padding, c.channels));
  const auto expected = differentiate(x.to(torch::kFloat64), weight.to(torch::kFloat64), dy.to(torch::kFloat64),
                                      [&](const auto& input, const auto& parameter) { return convolve_directly(c, input, parameter); });
  const auto actual = differentiate(x, weight, dy, [&](const auto& input, const auto& parameter) {
    return convolve_depthwise(input, parameter, {}, c.stride, c.padding);
  });
  EXPECT_TRUE(actual.y.equal(convolve_directly(c, x, weight)));
  EXPECT_EQ(actual.dx.scalar_type(), dtype);
  EXPECT_EQ(actual.dw.scalar_type(), dtype);
  return std::max(distance(actual.dx, expected.dx), distance(actual.dw, expected.dw));
}

std::string describe(const DepthwiseCase& c) {
  return c10::str(c.height, "x", c.width, ", kernel ", c.kernel, ", stride ", c.stride, ", padding ", c.padding);
}

TEST(DepthwiseConvolution, EqualsLibTorchsOperator) {
  for (const auto& c : depthwise_cases()) {
    EXPECT_LT(largest_distance(c, torch::kFloat64), 1e-14) << describe(c);
    EXPECT_LT(largest_distance(c, torch::kFloat32), 1e-6) << describe(c);
    // Only the results are rounded to 8 bits; the bound is half a unit in the last place.
    EXPECT_LT(largest_distance(c, torch::kBFloat16), 1.0 / 256) << describe(c);
  }
}

TEST(DepthwiseConvolution, IsExactWithTheInstructionsOfEachKindOfProcessor) {
  testing::for_each_kind_of_processor([](const char* name) {
    for (const auto& c : {depthwise_cases()[1], depthwise_cases()[2]}) EXPECT_LT(largest_distance(c, torch::kFloat64), 1e-14) << name;
  });
}

TEST(DepthwiseConvolution, TheBitsDoNotDependOnTheTimingOfThreads) {
  const DepthwiseCase c{5, 30, 31, 24, 3, 1, 1};
  const auto tensors = make_tensors(c);
  const auto run = [&] {
    return differentiate(tensors.x, tensors.weight, tensors.dy, [&](const auto& input, const auto& parameter) {
      return convolve_depthwise(input, parameter, {}, c.stride, c.padding);
    });
  };
  const int num_threads = at::get_num_threads();
  at::set_num_threads(5);
  const auto first = run();
  for (int i = 0; i < 3; ++i) {
    const auto again = run();
    EXPECT_TRUE(again.dx.equal(first.dx));
    EXPECT_TRUE(again.dw.equal(first.dw));
  }
  at::set_num_threads(num_threads);
}

TEST(DepthwiseConvolution, OtherGradientsAreTheSameWithoutThoseOfFrozenParameters) {
  const DepthwiseCase c{2, 9, 9, 16, 5, 1, 2};
  const auto tensors = make_tensors(c);
  const auto gradients = [&](bool trains_x, bool trains_weight, bool trains_bias) {
    const auto x = tensors.x.clone().requires_grad_(trains_x);
    const auto weight = tensors.weight.clone().requires_grad_(trains_weight);
    const auto bias = torch::ones({c.channels}, torch::kFloat64).requires_grad_(trains_bias);
    convolve_depthwise(x, weight, bias, c.stride, c.padding).backward(tensors.dy);
    return std::vector<torch::Tensor>{x.grad(), weight.grad(), bias.grad()};
  };
  const auto expected = gradients(true, true, true);
  EXPECT_LT(distance(expected[2], tensors.dy.sum({0, 2, 3})), 1e-13);
  for (const auto& trained : {std::array{true, false, false}, {false, true, false}, {false, false, true}}) {
    const auto actual = gradients(trained[0], trained[1], trained[2]);
    for (size_t i = 0; i < trained.size(); ++i) EXPECT_TRUE(trained[i] ? actual[i].equal(expected[i]) : !actual[i].defined()) << i;
  }
}

TEST(DepthwiseConvolution, TakesOnlyWhatItCanCompute) {
  const auto in_format = [](const torch::Tensor& tensor) { return tensor.contiguous(torch::MemoryFormat::ChannelsLast); };
  const auto x = in_format(torch::zeros({1, 16, 8, 8}));
  EXPECT_TRUE(supports_depthwise(x, torch::zeros({16, 1, 3, 3}), 1, 1, 16));
  EXPECT_FALSE(supports_depthwise(torch::zeros({1, 16, 8, 8}), torch::zeros({16, 1, 3, 3}), 1, 1, 16));
  EXPECT_FALSE(supports_depthwise(x, torch::zeros({16, 2, 3, 3}), 1, 1, 8));
  EXPECT_FALSE(supports_depthwise(x, torch::zeros({32, 1, 3, 3}), 1, 1, 16));
  EXPECT_FALSE(supports_depthwise(x, torch::zeros({16, 1, 4, 4}), 1, 1, 16));
  EXPECT_FALSE(supports_depthwise(x, torch::zeros({16, 1, 3, 5}), 1, 1, 16));
  EXPECT_FALSE(supports_depthwise(x, torch::zeros({16, 1, 3, 3}), 3, 1, 16));
  EXPECT_FALSE(supports_depthwise(x, torch::zeros({16, 1, 3, 3}), 1, 3, 16));
  EXPECT_FALSE(supports_depthwise(x.to(torch::kFloat16), torch::zeros({16, 1, 3, 3}, torch::kFloat16), 1, 1, 16));
  EXPECT_FALSE(supports_depthwise(in_format(torch::zeros({1, 11, 8, 8})), torch::zeros({11, 1, 3, 3}), 1, 1, 11));
}

}  // namespace
}  // namespace trainer::nn::convolution
