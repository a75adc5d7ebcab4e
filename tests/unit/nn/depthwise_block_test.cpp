#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <string>
#include <vector>

#include "nn/convolution/convolution.h"
#include "nn/layers.h"
#include "tests/testing/processors.h"
#include "tests/testing/ranks.h"
#include "trainer/error.h"
#include "trainer/nn.h"
#include "trainer/torch.h"

namespace trainer::nn::test {
namespace {

constexpr int64_t kInChannels = 8;

struct BlockCase {
  int64_t images, height, width, channels, kernel, stride, padding;
  Activation first = Activation::kRelu6, second = Activation::kRelu6;
  bool same_padding = false;
};

// Every kernel and stride; paddings from none to all but one, and TensorFlow's; images smaller than the kernel; more rows than a block has;
// odd sizes; channels that need all sizes of vectors. Enough images, because the gradients of few values per channel are differences of
// almost equal numbers.
std::vector<BlockCase> block_cases() {
  std::vector<BlockCase> cases{{3, 67, 65, 24, 3, 1, 1, Activation::kSilu, Activation::kNone},
                               {3, 66, 65, 24, 5, 2, 2, Activation::kHardswish, Activation::kRelu},
                               {1, 90, 91, 40, 7, 2, 3},
                               {2, 4, 5, 512, 3, 1, 1},
                               {3, 33, 34, 58, 3, 1, 1},
                               {3, 34, 33, 116, 3, 2, 1},
                               {9, 9, 12, 2, 5, 1, 2}};
  for (const int64_t kernel : {3, 5, 7}) {
    for (const int64_t stride : {1, 2}) {
      for (const int64_t padding : {int64_t{0}, kernel / 2, kernel - 1}) {
        for (const auto& [height, width] : {std::pair<int64_t, int64_t>(9, 12), {8, 8}, {1, 2}, {7, 3}}) {
          if (std::min(height, width) + 2 * padding >= kernel) cases.push_back({9, height, width, 24, kernel, stride, padding});
        }
      }
    }
  }
  for (const int64_t kernel : {3, 5, 7}) {
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>(40, 41), {8, 8}, {7, 9}, {2, 1}}) {
      BlockCase c{9, height, width, 24, kernel, 2, 1};
      c.same_padding = true;
      cases.push_back(c);
    }
  }
  return cases;
}

std::string describe(const BlockCase& c) {
  const auto padding = c.same_padding ? "same" : std::to_string(c.padding);
  return c10::str(c.images, " images ", c.height, "x", c.width, "x", c.channels, ", kernel ", c.kernel, ", stride ", c.stride, ", padding ",
                  padding);
}

struct Block {
  Conv2d expansion, depthwise;
  BatchNorm2d first, second;
  Activation first_activation, second_activation;

  Block(const BlockCase& c, torch::ScalarType dtype, bool is_fused, const std::shared_ptr<const distributed::ProcessGroup>& group = nullptr)
      : expansion(kInChannels, c.channels, 1),
        depthwise(c.channels, c.channels, c.kernel,
                  {.stride = c.stride, .padding = c.padding, .groups = c.channels, .same_padding = c.same_padding}),
        first(c.channels, {}, group),
        second(c.channels, {}, group),
        first_activation(c.first),
        second_activation(c.second) {
    const torch::NoGradGuard no_grad;
    for (auto* convolution : {&expansion, &depthwise}) {
      convolution->weight.copy_(random(convolution->weight.sizes(), 7));
      convolution->to(dtype);
      if (is_fused) convolution->use_winograd(convolution::Tile::k4);
    }
    for (auto* norm : {&first, &second}) {
      norm->weight.copy_(at::linspace(0.5, 2.0, c.channels));
      norm->bias.copy_(at::linspace(-1.0, 1.0, c.channels));
      norm->to(dtype);
      if (is_fused) norm->use_fused_operator();
    }
  }

  static torch::Tensor random(at::IntArrayRef sizes, uint64_t seed) {
    return at::randn(sizes, at::detail::createCPUGenerator(seed), torch::kFloat64);
  }
  static torch::Tensor input(const BlockCase& c) {
    return random({c.images, kInChannels, c.height, c.width}, 1).contiguous(torch::MemoryFormat::ChannelsLast);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return convolve_normalise_twice({expansion, first, first_activation}, {depthwise, second, second_activation}, x);
  }

  // Output, gradients and running statistics.
  std::vector<torch::Tensor> pass(const torch::Tensor& x, const torch::Tensor& dz) {
    const auto input = x.detach().requires_grad_();
    const auto z = forward(input);
    z.backward(dz.to(z.scalar_type()));
    return {z.detach(),          input.grad(),      expansion.weight.grad(), depthwise.weight.grad(),
            first.weight.grad(), first.bias.grad(), second.weight.grad(),    second.bias.grad(),
            first.running_mean,  first.running_var, second.running_mean,     second.running_var};
  }
};

std::vector<torch::Tensor> pass(const BlockCase& c, torch::ScalarType dtype, bool is_fused) {
  Block block(c, dtype, is_fused);
  const auto x = Block::input(c).to(dtype);
  Block shape(c, torch::kFloat64, false);
  const auto dz = Block::random(shape.forward(Block::input(c)).sizes(), 2);
  return block.pass(x, dz);
}

double distance(const torch::Tensor& actual, const torch::Tensor& expected) {
  const auto exact = expected.to(torch::kFloat64);
  return ((actual.to(torch::kFloat64) - exact).norm() / exact.norm().clamp_min(1e-3)).item<double>();
}

TEST(DepthwiseBlock, EqualsTheLayersOneAfterTheOther) {
  for (const auto& c : block_cases()) {
    const auto expected = pass(c, torch::kFloat64, false);
    const auto exact = pass(c, torch::kFloat64, true);
    const auto rounded = pass(c, torch::kFloat32, true);
    const auto separate = pass(c, torch::kFloat32, false);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(distance(exact[i], expected[i]), 1e-11) << describe(c) << ", result " << i;
      // Few values per channel have a small variance, which enlarges roundings, also those of separate layers.
      EXPECT_LT(distance(rounded[i], expected[i]), 3e-6 + 3 * distance(separate[i], expected[i])) << describe(c) << ", result " << i;
    }
  }
}

TEST(DepthwiseBlock, IsOneOperator) {
  const BlockCase c{2, 9, 12, 24, 3, 1, 1};
  Block fused(c, torch::kFloat32, true);
  const auto x = Block::input(c).to(torch::kFloat32);
  EXPECT_NE(fused.forward(x).grad_fn()->name().find("NormaliseDepthwise"), std::string::npos);
  EXPECT_EQ(fused.first.num_batches_tracked.item<int64_t>(), 1);
  EXPECT_EQ(fused.second.num_batches_tracked.item<int64_t>(), 1);
  fused.second.freeze_statistics();
  EXPECT_EQ(fused.forward(x).grad_fn()->name().find("NormaliseDepthwise"), std::string::npos);
  EXPECT_EQ(fused.second.num_batches_tracked.item<int64_t>(), 1);
}

TEST(DepthwiseBlock, RoundsToBFloat16LikeSeparateLayers) {
  const BlockCase c{3, 30, 31, 24, 3, 1, 1};
  const auto with = [&](bool is_fused) {
    Block block(c, torch::kFloat32, is_fused);
    if (is_fused) block.expansion.use_winograd(std::nullopt);
    const auto x = Block::input(c).to(torch::kFloat32);
    const WeightCasts casts({block.expansion.weight, block.depthwise.weight}, torch::kBFloat16);
    at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    auto results = block.pass(x, Block::random({3, 24, 30, 31}, 2));
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return results;
  };
  const auto expected = pass(c, torch::kFloat64, false);
  const auto separate = with(false);
  const auto fused = with(true);
  EXPECT_EQ(fused[0].scalar_type(), torch::kBFloat16);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_LT(distance(fused[i], expected[i]), 1.0 / 256 + 1.5 * distance(separate[i], expected[i])) << i;
}

TEST(DepthwiseBlock, IsExactWithTheInstructionsOfEachKindOfProcessor) {
  const auto cases = block_cases();
  testing::for_each_kind_of_processor([&](const char* name) {
    for (const auto& c : {cases[0], cases[1]}) {
      const auto expected = pass(c, torch::kFloat64, false);
      const auto actual = pass(c, torch::kFloat64, true);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_LT(distance(actual[i], expected[i]), 1e-11) << name;
    }
  });
}

TEST(DepthwiseBlock, TheBitsDoNotDependOnTheTimingOfThreads) {
  const BlockCase c{5, 30, 31, 24, 3, 1, 1};
  const int num_threads = at::get_num_threads();
  at::set_num_threads(5);
  const auto first = pass(c, torch::kFloat32, true);
  for (int repetition = 0; repetition < 3; ++repetition) {
    const auto again = pass(c, torch::kFloat32, true);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(again[i].equal(first[i])) << i;
  }
  at::set_num_threads(num_threads);
}

TEST(DepthwiseBlock, RanksComputeWhatOneRankDoes) {
  const BlockCase c{5, 9, 12, 24, 3, 2, 1};
  const std::vector<int64_t> shards = {3, 0, 2};
  const auto expected = pass(c, torch::kFloat64, false);
  std::vector<std::vector<torch::Tensor>> results(shards.size());
  testing::run_ranks(static_cast<int>(shards.size()), [&](distributed::ProcessGroups& groups) {
    const auto rank = static_cast<size_t>(groups.world()->rank());
    Block block(c, torch::kFloat64, true, groups.world());
    const auto part = [&](const torch::Tensor& whole) {
      return whole.narrow(0, rank == 0 ? 0 : 3, shards[rank]).clone(torch::MemoryFormat::ChannelsLast);
    };
    results[rank] = block.pass(part(Block::input(c)), part(Block::random(expected[0].sizes(), 2)));
  });
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool is_statistic = i >= 8;
    const auto joined = i < 2 ? at::cat({results[0][i], results[1][i], results[2][i]})
                              : (is_statistic ? results[1][i] : results[0][i] + results[1][i] + results[2][i]);
    EXPECT_LT(distance(joined, expected[i]), 1e-11) << i;
    if (is_statistic) {
      EXPECT_TRUE(results[0][i].equal(results[1][i]) && results[2][i].equal(results[1][i])) << i;
    }
  }
}

TEST(DepthwiseBlock, OtherGradientsAreTheSameWithoutThoseOfFrozenParameters) {
  const BlockCase c{2, 9, 12, 24, 3, 1, 1};
  const auto expected = pass(c, torch::kFloat32, true);
  Block block(c, torch::kFloat32, true);
  const std::vector<torch::Tensor> parameters = {block.expansion.weight, block.depthwise.weight, block.first.weight,
                                                 block.first.bias,       block.second.weight,    block.second.bias};
  for (size_t frozen = 0; frozen < parameters.size(); ++frozen) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].requires_grad_(i != frozen);
      parameters[i].mutable_grad().reset();
    }
    const auto x = Block::input(c).to(torch::kFloat32);
    block.forward(x).backward(Block::random(expected[0].sizes(), 2).to(torch::kFloat32));
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(parameters[i].grad().defined(), i != frozen);
      if (i != frozen) {
        EXPECT_TRUE(parameters[i].grad().equal(expected[2 + i])) << i << " without " << frozen;
      }
    }
  }
}

TEST(DepthwiseBlock, ASingleValuePerChannelIsRefused) {
  Block before({1, 1, 1, 24, 3, 1, 1}, torch::kFloat32, true);
  EXPECT_THROW(before.forward(at::zeros({1, kInChannels, 1, 1})), UsageError);
  Block after({1, 3, 3, 24, 3, 1, 0}, torch::kFloat32, true);
  EXPECT_THROW(after.forward(Block::input({1, 3, 3, 24, 3, 1, 0}).to(torch::kFloat32)), UsageError);
}

}  // namespace
}  // namespace trainer::nn::test
