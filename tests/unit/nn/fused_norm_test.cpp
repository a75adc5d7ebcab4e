#include "nn/fused_norm/fused_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "nn/batch_norm.h"
#include "nn/fused_norm/gpu.h"
#include "nn/layers.h"
#include "tests/testing/gpu_kernels_on_cpu.h"
#include "tests/testing/processors.h"
#include "tests/testing/ranks.h"
#include "trainer/error.h"
#include "trainer/torch.h"

namespace trainer::nn::test {
namespace {

// Few and many rows, numbers of channels that need one size of vectors and several, and numbers of rows that no block size divides.
const std::vector<std::vector<int64_t>> kFusedShapes = {{2, 8, 3, 5}, {1, 24, 2, 3}, {5, 16, 32, 31}, {3, 40, 17, 19}, {2, 512, 4, 4}};

struct FusedCase {
  Activation activation = Activation::kRelu;
  bool has_residual = false;  // only with a ReLU
  bool is_training = true;
};

// GELU is not fused.
constexpr FusedCase kFusedCases[] = {
    {Activation::kRelu, false, true},  {Activation::kRelu, true, true},       {Activation::kNone, false, true},
    {Activation::kRelu, false, false}, {Activation::kRelu, true, false},      {Activation::kNone, false, false},
    {Activation::kRelu6, false, true}, {Activation::kHardswish, false, true}, {Activation::kSilu, false, true},
    {Activation::kSilu, false, false}, {Activation::kGelu, false, true}};

std::string name_of(const FusedCase& fused_case, at::IntArrayRef shape) {
  return c10::str(shape, " activation ", static_cast<int>(fused_case.activation), fused_case.has_residual ? " residual" : "",
                  fused_case.is_training ? " training" : " evaluation");
}

torch::Tensor fused_values(at::IntArrayRef shape, uint64_t seed, torch::ScalarType dtype) {
  return (at::randn(shape, at::detail::createCPUGenerator(seed), torch::kFloat64) * 2 + 0.7)
      .to(dtype)
      .contiguous(torch::MemoryFormat::ChannelsLast);
}

void set_state(BatchNorm2d& norm, torch::ScalarType dtype) {
  const int64_t num_channels = norm.weight.numel();
  norm.to(dtype);
  const torch::NoGradGuard no_grad;
  norm.weight.copy_(at::linspace(-0.5, 2.0, num_channels));
  norm.bias.copy_(at::linspace(-1.0, 1.0, num_channels));
  norm.running_mean.copy_(at::linspace(0.0, 1.0, num_channels));
  norm.running_var.copy_(at::linspace(1.0, 5.0, num_channels));
}

// Returns the output, the gradients of input, weight and bias, the running statistics, and the gradient of the residual, if there is one.
// The inputs are representable in `rounding` too.
std::vector<torch::Tensor> pass_through(BatchNorm2d& norm, const FusedCase& fused_case, at::IntArrayRef shape, torch::ScalarType dtype,
                                        torch::ScalarType rounding) {
  set_state(norm, dtype == torch::kFloat64 ? dtype : torch::kFloat32);
  norm.train(fused_case.is_training);
  const auto values = [&](uint64_t seed) { return fused_values(shape, seed, rounding).to(dtype); };
  const auto x = values(1).requires_grad_();
  const auto residual = fused_case.has_residual ? values(2).requires_grad_() : torch::Tensor();
  const auto y = residual.defined() ? norm.forward_relu(x, residual) : norm.forward_activated(x, fused_case.activation);
  y.backward(values(3));
  std::vector<torch::Tensor> results = {y.detach(), x.grad(), norm.weight.grad(), norm.bias.grad(), norm.running_mean, norm.running_var};
  if (residual.defined()) results.push_back(residual.grad());
  return results;
}

std::vector<torch::Tensor> pass_through(BatchNorm2d& norm, const FusedCase& fused_case, at::IntArrayRef shape, torch::ScalarType dtype) {
  return pass_through(norm, fused_case, shape, dtype, dtype);
}

// The kernels for CPUs, or those for GPUs, which run on the CPU here.
enum class Kernels { kCpu, kGpu };

// For CPUs also a number of channels that is no multiple of 8.
std::vector<std::vector<int64_t>> shapes_of(Kernels kernels) {
  auto shapes = kFusedShapes;
  if (kernels == Kernels::kCpu) shapes.push_back({4, 58, 9, 19});
  return shapes;
}

std::shared_ptr<const fused_norm::GpuKernels> gpu_kernels(Kernels kernels) {
  static constexpr device::CudaModule kModule{.compile = &testing::on_cpu::compile, .launch = &testing::on_cpu::launch};
  static const auto of_gpu = std::make_shared<const fused_norm::GpuKernels>(kModule, torch::kCPU);
  return kernels == Kernels::kGpu ? of_gpu : nullptr;
}

BatchNorm2d fused_norm_of(int64_t num_channels, Kernels kernels = Kernels::kCpu) {
  BatchNorm2d norm(num_channels);
  norm.use_fused_operator(gpu_kernels(kernels));
  return norm;
}

std::vector<std::pair<FusedCase, Kernels>> cases_of_both() {
  std::vector<std::pair<FusedCase, Kernels>> cases;
  for (const auto kernels : {Kernels::kCpu, Kernels::kGpu}) {
    for (const auto& fused_case : kFusedCases) cases.emplace_back(fused_case, kernels);
  }
  return cases;
}

double relative_distance(const torch::Tensor& actual, const torch::Tensor& expected) {
  const auto exact = expected.to(torch::kFloat64);
  return ((actual.to(torch::kFloat64) - exact).norm() / exact.norm().clamp_min(1e-300)).item<double>();
}

TEST(FusedNorm, EqualsTheOperatorsOneAfterTheOther) {
  for (const auto& shape : shapes_of(Kernels::kCpu)) {
    for (const auto& fused_case : kFusedCases) {
      BatchNorm2d plain(shape[1]);
      auto fused = fused_norm_of(shape[1]);
      auto fused_float = fused_norm_of(shape[1]);
      const auto expected = pass_through(plain, fused_case, shape, torch::kFloat64);
      const auto exact = pass_through(fused, fused_case, shape, torch::kFloat64);
      const auto rounded = pass_through(fused_float, fused_case, shape, torch::kFloat32);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LT(relative_distance(exact[i], expected[i]), 1e-13) << name_of(fused_case, shape) << ", result " << i;
        // The bound is a few roundings of float32, 6e-8 each.
        EXPECT_LT(relative_distance(rounded[i], expected[i]), 5e-7) << name_of(fused_case, shape) << ", result " << i;
      }
    }
  }
}

TEST(FusedNorm, KernelsForGpusEqualTheOperatorsOneAfterTheOther) {
  auto shapes = kFusedShapes;
  shapes.push_back({5, 256, 32, 32});  // more rows than the largest number of parts has with the fewest rows
  for (const auto& shape : shapes) {
    for (const auto& fused_case : kFusedCases) {
      BatchNorm2d plain(shape[1]);
      const auto expected = pass_through(plain, fused_case, shape, torch::kFloat64);
      auto fused = fused_norm_of(shape[1], Kernels::kGpu);
      const auto actual = pass_through(fused, fused_case, shape, torch::kFloat32);
      testing::on_cpu::is_reversed = true;
      auto other = fused_norm_of(shape[1], Kernels::kGpu);
      const auto reversed = pass_through(other, fused_case, shape, torch::kFloat32);
      testing::on_cpu::is_reversed = false;
      for (size_t i = 0; i < expected.size(); ++i) {
        // The gradient of the weight subtracts a mean that is rounded to float32.
        EXPECT_LT(relative_distance(actual[i], expected[i]), 1e-6) << name_of(fused_case, shape) << ", result " << i;
        EXPECT_TRUE(reversed[i].equal(actual[i])) << name_of(fused_case, shape) << ", result " << i;
      }
    }
  }
}

TEST(FusedNorm, KernelsForGpusKeepTheVarianceBesideALargeMean) {
  auto norm = fused_norm_of(8, Kernels::kGpu);
  const auto x = (at::randn({64, 8, 16, 16}, at::detail::createCPUGenerator(1)) + 1000).contiguous(torch::MemoryFormat::ChannelsLast);
  BatchNorm2d plain(8);
  plain.to(torch::kFloat64);
  const auto expected = plain.forward(x.to(torch::kFloat64));
  // x has the step 6e-5, and the mean is rounded to it.
  EXPECT_LT((norm.forward(x).to(torch::kFloat64) - expected).abs().max().item<double>(), 2e-4);
  EXPECT_LT(relative_distance(norm.running_var, plain.running_var), 1e-5);
}

TEST(FusedNorm, OtherGradientsAreTheSameWithoutThoseOfFrozenParameters) {
  const std::vector<int64_t> shape = {3, 16, 5, 7};
  for (const auto& [fused_case, kernels] : cases_of_both()) {
    auto trained = fused_norm_of(shape[1], kernels);
    const auto expected = pass_through(trained, fused_case, shape, torch::kFloat32);
    for (const auto& [trains_weight, trains_bias] : {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
      auto frozen = fused_norm_of(shape[1], kernels);
      frozen.weight.requires_grad_(trains_weight);
      frozen.bias.requires_grad_(trains_bias);
      const auto actual = pass_through(frozen, fused_case, shape, torch::kFloat32);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        const bool is_frozen = (i == 2 && !trains_weight) || (i == 3 && !trains_bias);
        EXPECT_EQ(actual[i].defined(), !is_frozen) << name_of(fused_case, shape) << ", result " << i;
        if (!is_frozen) {
          EXPECT_TRUE(at::equal(actual[i], expected[i])) << name_of(fused_case, shape) << ", result " << i;
        }
      }
    }
  }
}

TEST(FusedNorm, RoundsOnlyItsResultsToSmallTypes) {
  for (const auto& [fused_case, kernels] : cases_of_both()) {
    for (const auto& shape : shapes_of(kernels)) {
      for (const auto dtype : {torch::kBFloat16, torch::kFloat16}) {
        if (dtype == torch::kFloat16 && kernels == Kernels::kCpu) continue;
        // A separate activation reads rounded values.
        if (!fused_norm::fused_activation(fused_case.activation)) continue;
        BatchNorm2d plain(shape[1]);
        auto fused = fused_norm_of(shape[1], kernels);
        const auto expected = pass_through(plain, fused_case, shape, torch::kFloat64, dtype);
        const auto actual = pass_through(fused, fused_case, shape, dtype);
        for (size_t i = 0; i < expected.size(); ++i) {
          // A rounding to bfloat16 changes a value by at most 2^-8 of it, one to float16 by 2^-11. The gradient of the weight subtracts a
          // mean that is rounded to float32.
          const auto type = actual[i].scalar_type();
          const double bound = type == torch::kBFloat16 ? 1.0 / 256 : type == torch::kFloat16 ? 1.0 / 2048 : 1e-6;
          EXPECT_LT(relative_distance(actual[i], expected[i]), bound) << name_of(fused_case, shape) << " " << dtype << ", result " << i;
        }
      }
    }
  }
}

TEST(FusedNorm, RoundsToBFloat16AsLibTorch) {
  auto x = fused_values({4, 8, 5, 5}, 1, torch::kBFloat16);
  auto residual = fused_values({4, 8, 5, 5}, 2, torch::kBFloat16) * 0.01;
  // Values halfway between two bfloat16 numbers, above an even and an odd one; and the largest number plus less and more than half a step.
  const float numbers[][2] = {{1, 1.0F / 256}, {1 + 1.0F / 128, 1.0F / 256}, {3.3895e38F, 6e35F}, {3.3895e38F, 7e35F}};
  for (int i = 0; i < 4; ++i) {
    x[0][i][0][0] = numbers[i][0];
    residual[0][i][0][0] = numbers[i][1];
  }
  x[1][2][0][0] = std::numeric_limits<float>::infinity();
  x[1][3][0][0] = std::numeric_limits<float>::quiet_NaN();
  const auto expected = (x.to(torch::kFloat32) + residual.to(torch::kFloat32)).relu().to(torch::kBFloat16);
  for (const auto kernels : {Kernels::kCpu, Kernels::kGpu}) {
    BatchNorm2d norm(8, {.eps = 0});
    norm.use_fused_operator(gpu_kernels(kernels));
    norm.eval();
    const auto actual = norm.forward_relu(x, residual);
    EXPECT_TRUE(actual.isnan().equal(expected.isnan()));
    EXPECT_TRUE(actual.nan_to_num().equal(expected.nan_to_num()));
  }
}

TEST(FusedNorm, IsExactWithTheInstructionsOfEachKindOfProcessor) {
  const FusedCase fused_case{.has_residual = true};
  BatchNorm2d plain(40);
  const auto expected = pass_through(plain, fused_case, kFusedShapes[3], torch::kFloat64);
  testing::for_each_kind_of_processor([&](const char* name) {
    auto fused = fused_norm_of(40);
    const auto actual = pass_through(fused, fused_case, kFusedShapes[3], torch::kFloat64);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_LT(relative_distance(actual[i], expected[i]), 1e-13) << name;
  });
}

TEST(FusedNorm, HasTheGradientsOfItsOutput) {
  for (const auto& fused_case : kFusedCases) {
    auto norm = fused_norm_of(8);
    norm.to(torch::kFloat64);
    norm.train(fused_case.is_training);
    norm.set_updates_statistics(false);
    auto x = fused_values({2, 8, 2, 3}, 1, torch::kFloat64);
    const auto residual = fused_case.has_residual ? fused_values({2, 8, 2, 3}, 2, torch::kFloat64) : torch::Tensor();
    const auto direction = fused_values({2, 8, 2, 3}, 3, torch::kFloat64);
    const auto weights = fused_values({2, 8, 2, 3}, 4, torch::kFloat64);
    const auto loss = [&](const torch::Tensor& input) {
      const auto y = residual.defined() ? norm.forward_relu(input, residual) : norm.forward_activated(input, fused_case.activation);
      return (y * weights).sum();
    };
    const auto input = x.clone().requires_grad_();
    loss(input).backward();
    constexpr double kStep = 1e-6;
    const auto difference = (loss(x + kStep * direction) - loss(x - kStep * direction)) / (2 * kStep);
    EXPECT_NEAR((input.grad() * direction).sum().item<double>(), difference.item<double>(), 1e-6) << name_of(fused_case, x.sizes());
  }
}

TEST(FusedNorm, IsTheSameInEachCall) {
  const FusedCase fused_case{.has_residual = true};
  auto first_norm = fused_norm_of(16);
  const auto first = pass_through(first_norm, fused_case, kFusedShapes[2], torch::kFloat32);
  for (int repetition = 0; repetition < 3; ++repetition) {
    auto norm = fused_norm_of(16);
    const auto again = pass_through(norm, fused_case, kFusedShapes[2], torch::kFloat32);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(again[i].equal(first[i])) << i;
  }
}

TEST(FusedNorm, RanksComputeWhatOneRankDoes) {
  const std::vector<int64_t> shards = {3, 0, 2};
  struct Case {
    bool has_residual;
    Kernels kernels;
    torch::ScalarType dtype;
    double bound;
  };
  for (const auto& [has_residual, kernels, dtype, bound] :
       {Case{false, Kernels::kCpu, torch::kFloat64, 1e-13}, Case{true, Kernels::kCpu, torch::kFloat64, 1e-13},
        Case{false, Kernels::kGpu, torch::kFloat32, 5e-7}, Case{true, Kernels::kGpu, torch::kFloat32, 5e-7},
        Case{true, Kernels::kGpu, torch::kBFloat16, 1.0 / 256}, Case{true, Kernels::kGpu, torch::kFloat16, 1.0 / 2048}}) {
    BatchNorm2d whole(8);
    const auto expected = pass_through(whole, {.has_residual = has_residual}, {5, 8, 3, 5}, torch::kFloat64, dtype);
    std::vector<std::vector<torch::Tensor>> results(shards.size());
    testing::run_ranks(static_cast<int>(shards.size()), [&, has_residual = has_residual, kernels = kernels, dtype = dtype](auto& groups) {
      const auto rank = static_cast<size_t>(groups.world()->rank());
      const int64_t first = rank == 0 ? 0 : 3;
      BatchNorm2d norm(8, {}, groups.world());
      set_state(norm, dtype == torch::kFloat64 ? dtype : torch::kFloat32);
      norm.use_fused_operator(gpu_kernels(kernels));
      const auto part = [&](uint64_t seed) {
        return fused_values({5, 8, 3, 5}, seed, dtype)
            .narrow(0, first, shards[rank])
            // LibTorch's convolutions give an empty tensor the default format.
            .clone(shards[rank] == 0 ? torch::MemoryFormat::Contiguous : torch::MemoryFormat::ChannelsLast);
      };
      const auto x = part(1).requires_grad_();
      const auto y = norm.forward_relu(x, has_residual ? part(2) : torch::Tensor());
      y.backward(part(3));
      results[rank] = {y.detach(), x.grad(), norm.weight.grad(), norm.bias.grad(), norm.running_mean, norm.running_var};
    });
    const auto joined = [&](size_t i) { return at::cat({results[0][i], results[1][i], results[2][i]}); };
    const auto sum = [&](size_t i) { return results[0][i] + results[1][i] + results[2][i]; };
    EXPECT_LT(relative_distance(joined(0), expected[0]), bound);
    EXPECT_LT(relative_distance(joined(1), expected[1]), bound);
    EXPECT_LT(relative_distance(sum(2), expected[2]), bound);
    EXPECT_LT(relative_distance(sum(3), expected[3]), bound);
    for (const auto& of_rank : results) {
      EXPECT_LT(relative_distance(of_rank[4], expected[4]), bound);
      EXPECT_LT(relative_distance(of_rank[5], expected[5]), bound);
      EXPECT_TRUE(of_rank[4].equal(results[0][4]) && of_rank[5].equal(results[0][5]));
    }
  }
}

TEST(FusedNorm, RanksRefuseASingleValuePerChannel) {
  for (const auto kernels : {Kernels::kCpu, Kernels::kGpu}) {
    testing::run_ranks(2, [&](distributed::ProcessGroups& groups) {
      BatchNorm2d norm(8, {}, groups.world());
      norm.use_fused_operator(gpu_kernels(kernels));
      const auto x = at::zeros({groups.world()->rank() == 0 ? 1 : 0, 8, 1, 1}).contiguous(torch::MemoryFormat::ChannelsLast);
      EXPECT_THROW(norm.forward(x), UsageError);
    });
  }
}

TEST(FusedNorm, ActivationsOfSpecialValuesEqualLibTorchs) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto values = torch::tensor({0.0, -0.0, -3.0, 3.0, 6.0, 100.0, -100.0, 1e4, -1e4, kInfinity, -kInfinity, std::nan("")});
  const auto x = values.to(torch::kFloat32).view({1, 1, 1, -1}).repeat({1, 8, 1, 1}).contiguous(torch::MemoryFormat::ChannelsLast);
  for (const auto activation : {Activation::kNone, Activation::kRelu, Activation::kRelu6, Activation::kHardswish, Activation::kSilu}) {
    const auto results = [&](bool is_fused) {
      BatchNorm2d norm(8, {.eps = 0});
      norm.eval();
      if (is_fused) norm.use_fused_operator();
      const auto input = x.clone().requires_grad_();
      const auto y = norm.forward_activated(input, activation);
      y.backward(torch::ones_like(y));
      return std::pair(y.detach(), input.grad());
    };
    const auto [y, dx] = results(/*is_fused=*/true);
    const auto [expected_y, expected_dx] = results(/*is_fused=*/false);
    EXPECT_TRUE(at::allclose(y, expected_y, 1e-6, 1e-30, /*equal_nan=*/true)) << static_cast<int>(activation) << y << expected_y;
    // The gradient of the normalisation itself is NaN for other values.
    const auto is_finite = x.isfinite();
    EXPECT_TRUE(at::allclose(dx.masked_select(is_finite), expected_dx.masked_select(is_finite), 1e-6, 1e-30, /*equal_nan=*/true))
        << static_cast<int>(activation) << dx << expected_dx;
  }
}

TEST(FusedNorm, KeepsValuesThatAreNotFinite) {
  for (const auto kernels : {Kernels::kCpu, Kernels::kGpu}) {
    auto norm = fused_norm_of(8, kernels);
    norm.eval();
    const auto x = at::zeros({1, 8, 1, 2}).contiguous(torch::MemoryFormat::ChannelsLast);
    x[0][3][0][1] = std::numeric_limits<float>::quiet_NaN();
    const auto y = norm.forward_relu(x);
    EXPECT_TRUE(y[0][3][0][1].isnan().item<bool>());
    EXPECT_EQ(y.isnan().sum().item<int64_t>(), 1);
    // An infinite value makes the statistics of its channel NaN.
    norm.train();
    x[0][3][0][1] = std::numeric_limits<float>::infinity();
    norm.forward_relu(x);
    EXPECT_TRUE(norm.running_var[3].isnan().item<bool>());
    EXPECT_EQ(norm.running_var.isnan().sum().item<int64_t>(), 1);
  }
}

TEST(FusedNorm, GradientsPassWhereTheOutputIsNotFinite) {
  for (const bool has_residual : {false, true}) {
    std::vector<torch::Tensor> gradients;
    for (int i = 0; i < 3; ++i) {
      BatchNorm2d norm(8);
      if (i > 0) norm.use_fused_operator(gpu_kernels(i == 1 ? Kernels::kCpu : Kernels::kGpu));
      norm.eval();
      auto x = at::ones({1, 8, 1, 2}).contiguous(torch::MemoryFormat::ChannelsLast);
      x[0][3][0][1] = std::numeric_limits<float>::quiet_NaN();
      const auto residual = has_residual ? at::ones_like(x) : torch::Tensor();
      norm.forward_relu(x, residual).sum().backward();
      gradients.push_back(norm.bias.grad());
    }
    for (const auto& gradient : gradients) EXPECT_TRUE(gradient.equal(gradients[0])) << gradient << gradients[0];
  }
}

TEST(FusedNorm, GradientsOfAViewBetweenTwoMultiplesOf16Bytes) {
  auto norm = fused_norm_of(8, Kernels::kGpu);
  const auto expected = pass_through(norm, {.has_residual = true}, {2, 8, 3, 5}, torch::kFloat32);
  const auto x = fused_values({2, 8, 3, 5}, 1, torch::kFloat32).requires_grad_();
  const auto dy = fused_values({2, 8, 3, 5}, 3, torch::kFloat32);
  const auto shifted = at::empty({dy.numel() + 1}).as_strided(dy.sizes(), dy.strides(), /*storage_offset=*/1);
  shifted.copy_(dy);
  ASSERT_NE(reinterpret_cast<uintptr_t>(shifted.const_data_ptr()) % 16, 0U);
  set_state(norm, torch::kFloat32);
  norm.forward_relu(x, fused_values({2, 8, 3, 5}, 2, torch::kFloat32)).backward(shifted);
  EXPECT_TRUE(x.grad().equal(expected[1]));
}

TEST(FusedNorm, FrozenStatisticsPassGradientsOfInfiniteInputs) {
  auto norm = fused_norm_of(8, Kernels::kGpu);
  norm.eval();
  const auto x =
      at::full({1, 8, 1, 2}, std::numeric_limits<float>::infinity()).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
  norm.forward_relu(x).sum().backward();
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
  EXPECT_GT(x.grad().min().item<float>(), 0);
}

TEST(FusedNorm, SecondDerivativesAreRefused) {
  auto norm = fused_norm_of(8);
  const auto x = fused_values({2, 8, 3, 5}, 1, torch::kFloat32).requires_grad_();
  EXPECT_THROW(torch::autograd::grad({norm.forward_relu(x).sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true), c10::Error);
}

TEST(FusedNorm, AnObserverSeesTheNormalisedValues) {
  auto norm = fused_norm_of(8);
  norm.eval();
  const auto x = fused_values({2, 8, 2, 2}, 1, torch::kFloat32);
  bool saw_negative_values = false;
  const LayerObserver observer(
      [&](const torch::nn::Module&, const torch::Tensor& output) { saw_negative_values = (output < 0).any().item<bool>(); });
  EXPECT_FALSE((norm.forward_relu(x - 1) < 0).any().item<bool>());
  EXPECT_TRUE(saw_negative_values);
}

TEST(FusedNorm, BatchesWithoutAVarianceAreRefusedAndEmptyOnesAreNot) {
  auto norm = fused_norm_of(8);
  const auto of_size = [](int64_t size) { return at::zeros({size, 8, 1, 1}).contiguous(torch::MemoryFormat::ChannelsLast); };
  EXPECT_THROW(norm.forward_relu(of_size(1)), UsageError);
  EXPECT_EQ(norm.forward_relu(of_size(0)).numel(), 0);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 0);
}

TEST(FusedNorm, TakesOnlyWhatItCanCompute) {
  const auto supports = [](const torch::Tensor& x, const torch::Tensor& residual, const torch::Tensor& weight, Kernels kernels) {
    return fused_norm::supports(x, residual, {.weight = weight, .gpu = gpu_kernels(kernels)});
  };
  const auto weight = at::ones({8});
  const auto x = at::zeros({2, 8, 3, 3}).contiguous(torch::MemoryFormat::ChannelsLast);
  for (const auto kernels : {Kernels::kCpu, Kernels::kGpu}) {
    EXPECT_TRUE(supports(x, {}, weight, kernels));
    EXPECT_TRUE(supports(x, x, weight, kernels));
    EXPECT_FALSE(supports(x.contiguous(), {}, weight, kernels));
    EXPECT_FALSE(supports(x, x.contiguous(), weight, kernels));
    EXPECT_FALSE(supports(x, x.slice(0, 0, 1), weight, kernels));
    EXPECT_TRUE(supports(x.to(torch::kBFloat16), {}, weight, kernels));
    EXPECT_FALSE(supports(x.to(torch::kBFloat16), x, weight, kernels));
    EXPECT_FALSE(supports(x.to(torch::kBFloat16), {}, weight.to(torch::kBFloat16), kernels));
    EXPECT_EQ(supports(x.to(torch::kFloat16), {}, weight, kernels), kernels == Kernels::kGpu);
    EXPECT_EQ(supports(x.to(torch::kFloat64), {}, weight.to(torch::kFloat64), kernels), kernels == Kernels::kCpu);
    const auto with_channels = [&](int64_t channels) {
      const auto zeros = at::zeros({2, channels, 3, 3}).contiguous(torch::MemoryFormat::ChannelsLast);
      return supports(zeros, {}, at::ones({channels}), kernels);
    };
    EXPECT_EQ(with_channels(6), kernels == Kernels::kCpu);
    EXPECT_FALSE(with_channels(7));
  }
  const auto shifted = at::zeros({2 * 8 * 9 + 1}).narrow(0, 1, 2 * 8 * 9).view({2, 3, 3, 8}).permute({0, 3, 1, 2});
  EXPECT_TRUE(supports(shifted, {}, weight, Kernels::kCpu));
  EXPECT_FALSE(supports(shifted, {}, weight, Kernels::kGpu));
}

}  // namespace
}  // namespace trainer::nn::test
