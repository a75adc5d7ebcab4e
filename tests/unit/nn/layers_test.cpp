#include "nn/layers.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

namespace trainer::nn::test {
namespace {

// Expects the output of LibTorch's layer with the same weights.
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

// Enables autocast to bfloat16 on the CPU while it exists.
struct BFloat16Autocast {
  BFloat16Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~BFloat16Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST(Layers, UnderAutocastWinogradsAlgorithmTakesAndGivesBFloat16) {
  const auto x = torch::randn({2, 64, 8, 8}).contiguous(torch::MemoryFormat::ChannelsLast);
  const auto run = [&](bool winograd) {
    torch::manual_seed(1);
    const auto convolution = conv3x3(64, 64);
    BatchNorm2d norm(64);
    if (winograd) {
      convolution->use_winograd(convolution::Tile::k4);
      norm.use_fused_operator();
    }
    {
      const torch::NoGradGuard no_grad;
      convolution->weight.normal_(0, 0.05);
    }
    const BFloat16Autocast autocast;
    const auto input = x.clone().requires_grad_();
    const auto y = convolve_normalise_relu(*convolution, norm, input);
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    y.square().sum().backward();
    EXPECT_EQ(input.grad().scalar_type(), torch::kFloat32);
    norm.eval();
    const torch::NoGradGuard no_grad;
    const auto evaluated = convolve_normalise_relu(*convolution, norm, x, y.detach());
    EXPECT_EQ(evaluated.scalar_type(), torch::kBFloat16);
    return std::vector<torch::Tensor>{y.detach(), input.grad(), convolution->weight.grad(), evaluated};
  };
  const auto expected = run(false);
  const auto actual = run(true);
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto exact = expected[i].to(torch::kFloat32);
    // The bound allows a few roundings to 8 bits.
    EXPECT_LT((actual[i].to(torch::kFloat32) - exact).norm().item<double>(), 0.02 * exact.norm().item<double>()) << i;
  }
}

struct FoldedCase {
  int64_t in, out, kernel;
  Conv2dOptions options;

  Conv2d convolution() const {
    Conv2d layer(in, out, kernel, options);
    layer.use_winograd(convolution::Tile::k4);
    default_uniform_(layer.weight, layer.bias, at::globalContext().defaultGenerator(torch::kCPU));
    return layer;
  }
  // With running statistics, in evaluation.
  BatchNorm2d norm() const {
    const torch::NoGradGuard no_grad;
    BatchNorm2d layer(out);
    layer.weight.uniform_(0.5, 2);
    layer.bias.uniform_(-1, 1);
    layer.running_mean.uniform_(-1, 1);
    layer.running_var.uniform_(0.5, 2);
    layer.use_fused_operator();
    layer.freeze_statistics();
    return layer;
  }
  torch::Tensor input(int64_t batch, int64_t size) const {
    return torch::randn({batch, in, size, size}).contiguous(torch::MemoryFormat::ChannelsLast);
  }
};

const std::vector<FoldedCase> kFoldedCases = {{16, 24, 1, {}},
                                              {16, 16, 3, {.padding = 1}},
                                              {64, 64, 3, {.padding = 1}},
                                              {16, 32, 3, {.stride = 2, .padding = 1}},
                                              {24, 24, 5, {.stride = 2, .padding = 2, .groups = 24}},
                                              {5, 7, 1, {}},
                                              {3, 16, 7, {.stride = 2, .padding = 3, .bias = true}}};
constexpr std::array kActivations = {Activation::kNone, Activation::kRelu,      Activation::kRelu6,   Activation::kSilu,
                                     Activation::kGelu, Activation::kHardswish, Activation::kSigmoid, Activation::kHardsigmoid};

TEST(Layers, FixedWeightsGiveTheSameInEvaluation) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  for (const auto& c : kFoldedCases) {
    auto convolution = c.convolution();
    convolution.use_winograd(std::nullopt);
    auto norm = c.norm();
    // The second size is not the one for which the weights are prepared.
    for (const int64_t size : {12, 9, 2, 1}) {
      if (size + 2 * c.options.padding < c.kernel) continue;
      const auto x = c.input(2, size);
      for (const auto activation : kActivations) {
        const auto expected = activate(norm.forward(convolution.forward(x)), activation);
        auto fixed = convolution;
        fixed.fix_weights();
        for (int repetition = 0; repetition < 2; ++repetition) {
          const auto actual = convolve_normalise(fixed, norm, x, activation);
          EXPECT_TRUE(at::allclose(actual, expected, 1e-5, 1e-5)) << c.kernel << " " << size << " " << static_cast<int>(activation);
          EXPECT_TRUE(actual.is_contiguous(torch::MemoryFormat::ChannelsLast));
        }
        if (activation != Activation::kNone && activation != Activation::kRelu) continue;
        const auto residual = torch::randn_like(expected);
        const auto sum = activate(norm.forward(convolution.forward(x)) + residual, activation);
        EXPECT_TRUE(at::allclose(convolve_normalise(fixed, norm, x, activation, residual), sum, 1e-5, 1e-5)) << c.kernel << " " << size;
      }
    }
  }
}

TEST(Layers, FixedWeightsGiveWhatFloat64GivesWithAnyNumberOfThreads) {
  struct Case {
    FoldedCase layer;
    int64_t batch, size;
  };
  // Whole and half vectors of channels; images that are larger and smaller than the weight, so that threads divide either; rows of one and
  // of several blocks.
  const std::vector<Case> cases = {{{16, 96, 1, {}}, 1, 25},
                                   {{40, 56, 1, {}}, 3, 7},
                                   {{72, 136, 1, {}}, 1, 5},
                                   {{16, 72, 1, {.stride = 2}}, 2, 14},
                                   {{3, 40, 3, {.padding = 1}}, 2, 14},
                                   {{24, 136, 3, {.padding = 1}}, 1, 4},
                                   {{8, 16, 3, {.stride = 2, .padding = 1}}, 3, 29},
                                   {{3, 64, 7, {.stride = 2, .padding = 3, .bias = true}}, 2, 32},
                                   {{32, 32, 3, {.padding = 1}}, 1, 28},
                                   {{24, 24, 3, {.padding = 1, .groups = 24}}, 2, 13}};
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const int num_threads = at::get_num_threads();
  for (const auto& [layer, batch, size] : cases) {
    auto convolution = layer.convolution();
    convolution.fix_weights();
    auto norm = layer.norm();
    const auto x = layer.input(batch, size);
    const auto double_of = [](const torch::Tensor& t) { return t.defined() ? t.to(torch::kFloat64) : t; };
    auto y = at::conv2d(double_of(x), double_of(convolution.weight), double_of(convolution.bias), layer.options.stride,
                        layer.options.padding, 1, layer.options.groups);
    y = at::batch_norm(y, double_of(norm.weight), double_of(norm.bias), double_of(norm.running_mean), double_of(norm.running_var), false, 0,
                       1e-5, false);
    for (const auto activation : {Activation::kNone, Activation::kRelu, Activation::kRelu6, Activation::kSilu, Activation::kHardswish}) {
      for (const bool adds : {false, true}) {
        if (adds && activation != Activation::kNone && activation != Activation::kRelu) continue;
        const auto residual = adds ? at::randn_like(y).to(torch::kFloat32) : torch::Tensor();
        const auto expected = activate(adds ? y + residual : y, activation);
        const auto where =
            c10::str("kernel ", layer.kernel, ", size ", size, ", activation ", static_cast<int>(activation), ", residual ", adds);
        const auto actual = convolve_normalise(convolution, norm, x, activation, residual);
        const double bound = convolution.winograd_tile(x) ? 3e-5 : 3e-6;
        EXPECT_LE((actual - expected).abs().max().item<double>(), bound * expected.abs().max().item<double>()) << where;
        for (const int threads : {1, 3}) {
          at::set_num_threads(threads);
          EXPECT_TRUE(convolve_normalise(convolution, norm, x, activation, residual).equal(actual)) << where << ", threads " << threads;
        }
        at::set_num_threads(num_threads);
      }
    }
  }
}

TEST(Layers, FrozenStatisticsGiveTheGradientsOfSeparateLayers) {
  torch::manual_seed(1);
  for (const auto& c : kFoldedCases) {
    for (const auto& [batch, size] : {std::pair(3, 12), std::pair(1, 1)}) {
      if (size + 2 * c.options.padding < c.kernel) continue;
      for (const auto activation : kActivations) {
        for (const bool adds : {false, true}) {
          if (adds && activation != Activation::kNone && activation != Activation::kRelu) continue;
          auto convolution = c.convolution();
          auto norm = c.norm();
          const auto x = c.input(batch, size).requires_grad_();
          const auto y = convolution.forward(x);
          const auto residual = adds ? torch::randn_like(y).requires_grad_() : torch::Tensor();
          std::vector<torch::Tensor> inputs = {x, convolution.weight, norm.weight, norm.bias};
          if (convolution.bias.defined()) inputs.push_back(convolution.bias);
          if (adds) inputs.push_back(residual);
          const auto dy = torch::randn_like(y);
          const auto actual = convolve_normalise(convolution, norm, x, activation, residual);
          const auto actual_gradients = torch::autograd::grad({actual}, inputs, {dy});

          std::vector<torch::Tensor> exact;
          for (const auto& input : inputs) exact.push_back(input.detach().to(torch::kFloat64).requires_grad_());
          const auto bias = convolution.bias.defined() ? exact[4] : torch::Tensor();
          auto expected = at::conv2d(exact[0], exact[1], bias, c.options.stride, c.options.padding, 1, c.options.groups);
          expected = at::batch_norm(expected, exact[2], exact[3], norm.running_mean.to(torch::kFloat64),
                                    norm.running_var.to(torch::kFloat64), false, 0, 1e-5, false);
          expected = activate(adds ? expected + exact.back() : expected, activation);
          const auto expected_gradients = torch::autograd::grad({expected}, exact, {dy.to(torch::kFloat64)});
          const auto where =
              c10::str("kernel ", c.kernel, ", size ", size, ", activation ", static_cast<int>(activation), ", residual ", adds);
          const auto largest_of = [](const torch::Tensor& values) { return values.abs().max().item<double>(); };
          // Winograd's transforms of tiles of 4 lose up to a decimal digit.
          const double bound = convolution.winograd_tile(x) ? 3e-5 : 3e-6;
          EXPECT_LE(largest_of(actual - expected), bound * largest_of(expected)) << where;
          for (size_t i = 0; i < exact.size(); ++i) {
            const auto difference = largest_of(actual_gradients[i] - expected_gradients[i]);
            EXPECT_LE(difference, bound * largest_of(expected_gradients[i]) + 1e-6) << where << ", gradient " << i;
          }
        }
      }
    }
  }
}

TEST(Layers, FixedWeightsAreNotUsedInTraining) {
  const FoldedCase c{16, 24, 1, {}};
  auto convolution = c.convolution();
  convolution.fix_weights();
  BatchNorm2d norm(24);
  norm.use_fused_operator();
  const auto x = c.input(2, 12);
  const torch::NoGradGuard no_grad;
  norm.eval();
  const auto before = convolve_normalise(convolution, norm, x, Activation::kRelu);
  norm.train();
  EXPECT_FALSE(at::allclose(convolve_normalise(convolution, norm, x, Activation::kRelu), before, 1e-2, 1e-2));
}

TEST(Layers, WeightsThatAreConvertedTogetherGiveWhatAutocastGives) {
  Conv2d convolution(3, 6, 3, {.bias = true});
  Linear linear(6, 4);
  Linear unused(6, 4);
  torch::nn::Module network;
  network.register_module("convolution", std::shared_ptr<Conv2d>(std::shared_ptr<Conv2d>(), &convolution));
  network.register_module("linear", std::shared_ptr<Linear>(std::shared_ptr<Linear>(), &linear));
  network.register_module("unused", std::shared_ptr<Linear>(std::shared_ptr<Linear>(), &unused));
  for (const auto& parameter : network.parameters()) normal_(parameter, 0, 0.5, at::globalContext().defaultGenerator(torch::kCPU));
  linear.bias.requires_grad_(false);
  const auto weights = trained_weights(network);
  EXPECT_EQ(weights.size(), 5U);
  const auto x = torch::randn({2, 3, 8, 8});
  const auto run = [&](bool together) {
    network.zero_grad();
    const BFloat16Autocast autocast;
    std::optional<WeightCasts> casts;
    if (together) casts.emplace(weights, torch::kBFloat16);
    const auto y = linear.forward(convolution.forward(x).mean({2, 3}));
    y.square().sum().backward();
    return std::vector<torch::Tensor>{y.detach(), convolution.weight.grad(), convolution.bias.grad(), linear.weight.grad()};
  };
  const auto expected = run(false);
  const auto actual = run(true);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].scalar_type(), expected[i].scalar_type());
    EXPECT_TRUE(at::equal(actual[i], expected[i])) << i;
  }
  EXPECT_FALSE(unused.weight.grad().defined());
  // The converted weights are not used without autocast, nor for a weight that has changed since the conversion.
  const WeightCasts casts(weights, torch::kBFloat16);
  EXPECT_TRUE(used_weight(linear.weight).is_same(linear.weight));
  const BFloat16Autocast autocast;
  EXPECT_EQ(used_weight(linear.weight).scalar_type(), torch::kBFloat16);
  const torch::NoGradGuard no_grad;
  linear.weight.mul_(2);
  EXPECT_TRUE(used_weight(linear.weight).is_same(linear.weight));
}

TEST(Layers, ConstructorsDrawNoRandomNumbers) {
  const torch::Tensor before = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  const Conv2d convolution(3, 6, 5, {.bias = true});
  const Linear linear(7, 4);
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(torch::kCPU).get_state(), before));
}

}  // namespace
}  // namespace trainer::nn::test
