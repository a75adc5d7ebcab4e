#include "session/autocast_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "trainer/amp.h"

namespace trainer::session {
namespace {

constexpr double kSlow = 2;
constexpr int64_t kBatchSize = 2;
constexpr int kMostPasses = 3;  // the first one may fill caches of the libraries
constexpr double kEnoughSeconds = 0.5;

// The seconds of a forward and backward pass. In evaluation, which needs no other ranks and changes no running statistics.
double seconds_of_pass(engine::Network& network, const torch::Tensor& images, std::optional<torch::ScalarType> autocast_dtype) {
  const auto begin = std::chrono::steady_clock::now();
  torch::Tensor outputs;
  {
    const amp::AutocastGuard autocast(torch::kCPU, autocast_dtype);
    outputs = network.model->forward(images);
  }
  outputs.sum().backward();
  network.optimizer->zero_grad();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double least_seconds(engine::Network& network, const torch::Tensor& images, std::optional<torch::ScalarType> autocast_dtype) {
  double least = std::numeric_limits<double>::infinity();
  double sum = 0;
  for (int pass = 0; pass < kMostPasses && sum < kEnoughSeconds; ++pass) {
    const double seconds = seconds_of_pass(network, images, autocast_dtype);
    least = std::min(least, seconds);
    sum += seconds;
  }
  return least;
}

}  // namespace

std::string warning_of_autocast(const config::Experiment& experiment, engine::Network& network, const std::vector<int64_t>& sample_shape) {
  const auto& placement = network.placement;
  // With `auto`, autocast is on only where the processor is known to be fast.
  if (!placement.device.is_cpu() || !placement.autocast_dtype || !experiment.amp.enabled.value) return "";
  auto shape = sample_shape;
  shape.insert(shape.begin(), kBatchSize);
  auto images = torch::zeros(shape, placement.dtype);
  if (sample_shape.size() == 3) images = images.contiguous(placement.memory_format);
  network.model->eval();
  const double without = least_seconds(network, images, std::nullopt);
  const double with = least_seconds(network, images, placement.autocast_dtype);
  network.model->train();
  if (with < kSlow * without) return "";
  const char* const type = *placement.autocast_dtype == torch::kFloat16 ? "float16" : "bfloat16";
  return fmt::format(
      "{}: this processor computes {} slowly: {} images took {:.3g} s forward and backward, {:.2g} times as long as in float32 ({:.3g} s); "
      "leave amp.enabled out, which then is on only where it is fast",
      experiment.place_of("amp.enabled"), type, kBatchSize, with, with / without, without);
}

}  // namespace trainer::session
