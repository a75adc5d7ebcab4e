// Measures the networks' 3×3 convolutions: with stride 1 each algorithm's forward pass, gradient of the input and gradient of the weights;
// with stride 2 the gradient of the weights; of depthwise convolutions both gradients. Prints tables.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "device/placement.h"
#include "nn/convolution/convolution.h"
#include "trainer/torch.h"

namespace {

using trainer::nn::convolution::Tile;

struct Layer {
  const char* network;
  int64_t batch_size, channels, side;
};

constexpr Layer kLayers[] = {{"resnet20", 128, 16, 32},          {"resnet20", 128, 32, 16},        {"resnet20", 128, 64, 8},
                             {"resnet18", 128, 64, 32},          {"resnet18", 128, 128, 16},       {"resnet18", 128, 256, 8},
                             {"resnet18", 128, 512, 4},          {"vgg16_bn", 128, 512, 2},        {"wide_resnet 28-10", 32, 160, 32},
                             {"wide_resnet 28-10", 32, 320, 16}, {"wide_resnet 28-10", 32, 640, 8}};

struct StridedLayer {
  const char* network;
  int64_t batch_size, in_channels, out_channels, side;
};

constexpr StridedLayer kStridedLayers[] = {{"resnet20", 128, 16, 32, 32},          {"resnet20", 128, 32, 64, 16},
                                           {"resnet18", 128, 64, 128, 32},         {"resnet18", 128, 128, 256, 16},
                                           {"resnet18", 128, 256, 512, 8},         {"wide_resnet 28-10", 32, 160, 320, 32},
                                           {"wide_resnet 28-10", 32, 320, 640, 16}};

constexpr std::array kAlgorithms = {"direct", "winograd2", "winograd4"};

// For images in bfloat16, the direct algorithm gets the weight converted to bfloat16, as under autocast.
torch::Tensor convolve(size_t algorithm, const torch::Tensor& x, const torch::Tensor& weight) {
  if (algorithm == 0) return at::conv2d(x, weight.to(x.scalar_type()), {}, /*stride=*/1, /*padding=*/1);
  return trainer::nn::convolution::convolve(x, weight, {}, algorithm == 1 ? Tile::k2 : Tile::k4);
}

double milliseconds(const std::function<void()>& act) {
  const auto start = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

struct Times {
  double forward, input_gradient, weight_gradient;
};

Times measure(size_t algorithm, const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& dy) {
  Times times{};
  times.forward = milliseconds([&] { convolve(algorithm, x, weight); });
  const auto of_x = convolve(algorithm, x.detach().requires_grad_(), weight);
  const auto of_weight = convolve(algorithm, x, weight.detach().requires_grad_());
  times.input_gradient = milliseconds([&] { of_x.backward(dy); });
  times.weight_gradient = milliseconds([&] { of_weight.backward(dy); });
  return times;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

torch::Tensor random(at::IntArrayRef shape) { return torch::randn(shape).contiguous(torch::MemoryFormat::ChannelsLast); }

void print_layer(const Layer& layer, torch::ScalarType dtype, int64_t rounds) {
  const auto x = random({layer.batch_size, layer.channels, layer.side, layer.side}).to(dtype);
  const auto weight = random({layer.channels, layer.channels, 3, 3});
  const auto dy = torch::randn_like(x);
  std::array<std::array<std::vector<double>, 4>, kAlgorithms.size()> samples;
  for (int64_t round = -1; round < rounds; ++round) {
    for (size_t algorithm = 0; algorithm < kAlgorithms.size(); ++algorithm) {
      const auto times = measure(algorithm, x, weight, dy);
      if (round < 0) continue;  // warm-up
      const double sum = times.forward + times.input_gradient + times.weight_gradient;
      const std::array values = {times.forward, times.input_gradient, times.weight_gradient, sum};
      for (size_t i = 0; i < values.size(); ++i) samples[algorithm][i].push_back(values[i]);
    }
  }
  fmt::print("| {} | {} × {} × {}² |", layer.network, layer.batch_size, layer.channels, layer.side);
  for (size_t algorithm = 0; algorithm < kAlgorithms.size(); ++algorithm) {
    const auto& of_algorithm = samples[algorithm];
    fmt::print(" {:.1f} / {:.1f} / {:.1f} |", median(of_algorithm[0]), median(of_algorithm[1]), median(of_algorithm[2]));
    if (algorithm == 0) continue;
    std::vector<double> ratios;
    for (size_t i = 0; i < of_algorithm[3].size(); ++i) ratios.push_back(samples[0][3][i] / of_algorithm[3][i]);
    fmt::print(" {:.2f} |", median(ratios));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

// Prints the times of both backward passes and the median of their ratios.
void print_backward(const std::string& layer, int64_t rounds, const std::vector<torch::Tensor>& inputs, const torch::Tensor& dy,
                    const std::array<std::function<torch::Tensor()>, 2>& convolve) {
  std::array<std::vector<double>, 2> times;
  std::vector<double> ratios;
  for (int64_t round = -1; round < rounds; ++round) {
    std::array<double, 2> of_round{};
    for (size_t i = 0; i < convolve.size(); ++i) {
      const auto y = convolve[i]();
      of_round[i] = milliseconds([&] { torch::autograd::grad({y}, inputs, {dy}); });
    }
    if (round < 0) continue;  // warm-up
    for (size_t i = 0; i < times.size(); ++i) times[i].push_back(of_round[i]);
    ratios.push_back(of_round[0] / of_round[1]);
  }
  fmt::print("| {} | {:.1f} | {:.1f} | {:.2f} |\n", layer, median(times[0]), median(times[1]), median(ratios));
  std::fflush(stdout);
}

void print_strided_layer(const StridedLayer& layer, int64_t rounds) {
  const auto x = random({layer.batch_size, layer.in_channels, layer.side, layer.side});
  const auto weight = random({layer.out_channels, layer.in_channels, 3, 3}).requires_grad_();
  const auto dy = random({layer.batch_size, layer.out_channels, layer.side / 2, layer.side / 2});
  print_backward(fmt::format("{} | {} × {} → {} × {}²", layer.network, layer.batch_size, layer.in_channels, layer.out_channels, layer.side),
                 rounds, {weight}, dy,
                 {[&] { return at::conv2d(x, weight, {}, /*stride=*/2, /*padding=*/1); },
                  [&] { return trainer::nn::convolution::convolve_strided(x, weight, {}, /*stride=*/2); }});
}

struct DepthwiseLayer {
  const char* network;
  int64_t channels, side, kernel, stride;
};

constexpr DepthwiseLayer kDepthwiseLayers[] = {{"mobilenet_v2", 32, 112, 3, 1},       {"mobilenet_v2", 96, 112, 3, 2},
                                               {"mobilenet_v2", 144, 56, 3, 1},       {"mobilenet_v2", 384, 14, 3, 1},
                                               {"mobilenet_v2", 960, 7, 3, 1},        {"mobilenet_v3_large", 120, 28, 5, 1},
                                               {"mobilenet_v3_large", 672, 14, 5, 2}, {"mobilenet_v3_large", 960, 7, 5, 1},
                                               {"convnext_tiny", 96, 56, 7, 1},       {"convnext_tiny", 384, 14, 7, 1}};

void print_depthwise_layer(const DepthwiseLayer& layer, torch::ScalarType dtype, int64_t rounds) {
  constexpr int64_t kImages = 16;
  const int64_t padding = layer.kernel / 2;
  const auto x = random({kImages, layer.channels, layer.side, layer.side}).to(dtype).requires_grad_();
  const auto weight = torch::randn({layer.channels, 1, layer.kernel, layer.kernel}).to(dtype).requires_grad_();
  const auto dy = random({kImages, layer.channels, layer.side / layer.stride, layer.side / layer.stride}).to(dtype);
  print_backward(fmt::format("{} | {} × {} × {}², {}×{}, stride {}", layer.network, kImages, layer.channels, layer.side, layer.kernel,
                             layer.kernel, layer.stride),
                 rounds, {x, weight}, dy,
                 {[&] { return at::conv2d(x, weight, {}, layer.stride, padding, /*dilation=*/1, layer.channels); },
                  [&] { return trainer::nn::convolution::convolve_depthwise(x, weight, {}, layer.stride, padding); }});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times of convolutions by each algorithm; in a round, the algorithms take turns");
  int64_t rounds = 9;
  bool bfloat16 = false;
  app.add_option("--rounds", rounds);
  app.add_flag("--bfloat16", bfloat16, "images in bfloat16, as under autocast (not 3×3 with stride 2)");
  CLI11_PARSE(app, argc, argv);
  // As in the program; otherwise, the system has to clear the memory for the results of some calls.
  trainer::device::configure_cpu_allocator();
  fmt::print("{} threads; ms for forward / gradient of the input / gradient of the weights, medians of {} rounds\n\n",
             at::get_num_threads(), rounds);
  fmt::print("| network | images × channels × size | direct | winograd2 | ratio | winograd4 | ratio |\n|---|---|---|---|---|---|---|\n");
  for (const auto& layer : kLayers) print_layer(layer, bfloat16 ? torch::kBFloat16 : torch::kFloat32, rounds);
  fmt::print(
      "\ndepthwise, both gradients\n\n| network | images × channels × size, kernel | LibTorch's | ours | ratio |\n|---|---|---|---|---|\n");
  for (const auto& layer : kDepthwiseLayers) print_depthwise_layer(layer, bfloat16 ? torch::kBFloat16 : torch::kFloat32, rounds);
  if (bfloat16) return 0;
  fmt::print(
      "\nstride 2, gradient of the weights\n\n| network | images × channels × size | LibTorch's | ours | ratio |\n|---|---|---|---|---|\n");
  for (const auto& layer : kStridedLayers) print_strided_layer(layer, rounds);
}
