#include "nn/fused_norm/gpu.h"

#include <c10/util/StringUtil.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "nn/batch_norm.h"
#include "nn/fused_norm/gpu_arguments.h"
#include "trainer/error.h"
#include "trainer/torch.h"

namespace trainer::nn::fused_norm {
namespace {

// As in gpu_kernels.h.
constexpr int64_t kThreads = 256;
constexpr int64_t kColumns = 32;
constexpr int64_t kLanes = 16;

constexpr int64_t kFewRows = 4;  // rows of a thread for which another block is worthwhile
// Blocks that compute sums: enough for the largest GPUs. It does not depend on the GPU, so that all kinds of GPUs add in the same order.
constexpr int64_t kSumBlocks = 512;
constexpr int64_t kMostParts = 65535;  // CUDA's limit in y

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

Rows rows_of(const torch::Tensor& x) { return {.num_rows = x.numel() / x.size(1), .num_channels = static_cast<int>(x.size(1))}; }

struct RowShape {
  int64_t threads_x, threads_y, blocks_x;

  explicit RowShape(const torch::Tensor& x) {
    const int64_t num_vectors = x.size(1) * x.element_size() / 16;
    threads_x = std::min<int64_t>(32, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_vectors))));
    threads_y = kThreads / threads_x;
    blocks_x = divide_up(num_vectors, threads_x);
  }
};

// The number of parts into which the rows are divided.
int64_t num_parts(const torch::Tensor& x, int64_t most) {
  const RowShape shape(x);
  return std::clamp<int64_t>(divide_up(rows_of(x).num_rows, shape.threads_y * kFewRows), 1, std::max<int64_t>(1, most / shape.blocks_x));
}

float* values(const torch::Tensor& tensor) { return tensor.defined() ? static_cast<float*>(tensor.mutable_data_ptr()) : nullptr; }

const void* bytes(const torch::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }
void* mutable_bytes(const torch::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

const char* type_name(torch::ScalarType dtype) {
  return dtype == torch::kBFloat16 ? "BFloat16" : dtype == torch::kFloat16 ? "Float16" : "float";
}

}  // namespace

bool GpuKernels::supports(torch::ScalarType dtype) {
  return dtype == torch::kFloat32 || dtype == torch::kBFloat16 || dtype == torch::kFloat16;
}

const GpuKernels::Kernels& GpuKernels::kernels_for(const torch::Tensor& x) const {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = kernels_.try_emplace({x.scalar_type(), x.get_device()});
  if (!is_new) return entry->second;
  const auto source =
      fmt::format("#define TRAINER_VALUE {}\n#define TRAINER_KERNEL(name) extern \"C\" __global__ void __launch_bounds__({}) name\n{}{}",
                  type_name(x.scalar_type()), kColumns * kLanes, kGpuArguments, kGpuKernels);
  try {
    const auto compiled = cuda_.compile(
        source, {"moments", "merge", "statistics", "normalise", "gradient_sums", "gradients", "input_gradient"}, x.get_device());
    std::ranges::copy(compiled, entry->second.begin());
  } catch (const c10::Error& error) {
    kernels_.erase(entry);
    throw Error(fmt::format("the kernels of runtime.fuse: on cannot be compiled for this GPU ({}); set runtime.fuse: auto",
                            error.what_without_backtrace()));
  }
  return entry->second;
}

template <class Arguments>
void GpuKernels::launch_over_rows(Kernel kernel, const torch::Tensor& x, int64_t num_parts, const Arguments& arguments) const {
  const RowShape shape(x);
  cuda_.launch(kernels_for(x)[kernel], x.get_device(),
               {.blocks = {static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(num_parts)},
                .threads = {static_cast<unsigned>(shape.threads_x), static_cast<unsigned>(shape.threads_y)}},
               &arguments);
}

template <class Arguments>
void GpuKernels::launch_over_channels(Kernel kernel, const torch::Tensor& x, const Arguments& arguments) const {
  cuda_.launch(kernels_for(x)[kernel], x.get_device(),
               {.blocks = {static_cast<unsigned>(divide_up(x.size(1), kColumns)), 1}, .threads = {kColumns, kLanes}}, &arguments);
}

Statistics GpuKernels::statistics(const torch::Tensor& x, const Layer& layer) const {
  const int64_t num_channels = x.size(1);
  const auto options = x.options().dtype(torch::kFloat32);
  torch::Tensor parts;
  if (layer.is_training) {
    if (x.numel() > 0) {
      parts = at::empty({num_parts(x, kSumBlocks), 2 * num_channels + 1}, options);
      launch_over_rows(kMoments, x, parts.size(0), MomentsArguments{.rows = rows_of(x), .x = bytes(x), .parts = values(parts)});
    } else {
      parts = at::zeros({1, 2 * num_channels + 1}, options);
    }
    if (layer.group) {
      const auto merged = at::empty({2 * num_channels + 1}, options);
      launch_over_channels(kMerge, x,
                           MergeArguments{.parts = values(parts),
                                          .num_parts = static_cast<int>(parts.size(0)),
                                          .num_channels = static_cast<int>(num_channels),
                                          .merged = values(merged)});
      parts = layer.group->all_gather(merged);
      // Two values on this rank are sufficient. Otherwise the sum over all ranks is needed, and reading it requires waiting for the device.
      if (rows_of(x).num_rows < 2) check_count(parts.select(1, 2 * num_channels).sum().item<double>(), x.sizes(), *layer.group);
    }
  }
  const auto results = at::empty({4, num_channels}, options);
  const Statistics statistics{.batch = {.mean = results[0], .invstd = results[1], .count = at::empty({1}, options)},
                              .affine = {.scale = results[2], .shift = results[3]}};
  launch_over_channels(kStatistics, x,
                       StatisticsArguments{.parts = values(parts),
                                           .num_parts = parts.defined() ? static_cast<int>(parts.size(0)) : 0,
                                           .num_channels = static_cast<int>(num_channels),
                                           .batch_weight = layer.batch_weight,
                                           .eps = layer.eps,
                                           .weight = values(layer.weight),
                                           .bias = values(layer.bias),
                                           .running_mean = values(layer.running_mean),
                                           .running_var = values(layer.running_var),
                                           .mean = values(statistics.batch.mean),
                                           .invstd = values(statistics.batch.invstd),
                                           .scale = values(statistics.affine.scale),
                                           .shift = values(statistics.affine.shift),
                                           .count = values(statistics.batch.count)});
  return statistics;
}

void GpuKernels::normalise(const torch::Tensor& x, const torch::Tensor& residual, const ScaleAndShift& affine, bool relu,
                           const torch::Tensor& y) const {
  if (x.numel() == 0) return;
  launch_over_rows(kNormalise, x, num_parts(x, kMostParts),
                   NormaliseArguments{.rows = rows_of(x),
                                      .x = bytes(x),
                                      .residual = bytes(residual),
                                      .y = mutable_bytes(y),
                                      .scale = values(affine.scale),
                                      .shift = values(affine.shift),
                                      .relu = relu});
}

Gradients GpuKernels::differentiate(const torch::Tensor& output_gradient, const Forward& forward, const Needed& needed) const {
  const auto& x = forward.x;
  const auto& [batch, affine] = forward.statistics;
  const int64_t num_channels = x.size(1);
  const auto options = x.options().dtype(torch::kFloat32);
  const auto of_channels = [&](bool is_needed) { return is_needed ? at::empty({num_channels}, options) : torch::Tensor(); };
  // A view may begin at an address that is not a multiple of 16.
  const bool is_aligned = reinterpret_cast<uintptr_t>(bytes(output_gradient)) % 16 == 0;
  const auto dy = is_aligned ? output_gradient : output_gradient.clone();
  // With a residual, the gradient of the residual is the masked dy.
  const auto masked = forward.y.defined() ? at::empty_like(x) : torch::Tensor();
  Gradients gradients{.residual = masked.defined() ? masked : dy, .weight = of_channels(needed.weight), .bias = of_channels(needed.bias)};
  const bool needs_mean = needed.x && forward.is_training;
  auto x_factor = of_channels(needs_mean);
  auto constant = of_channels(needs_mean);
  if (needed.weight || needed.bias || forward.is_training || masked.defined()) {
    auto parts = x.numel() > 0 ? at::empty({num_parts(x, kSumBlocks), 2, num_channels}, options) : at::zeros({1, 2, num_channels}, options);
    if (x.numel() > 0) {
      launch_over_rows(kGradientSums, x, parts.size(0),
                       GradientSumsArguments{.rows = rows_of(x),
                                             .dy = bytes(dy),
                                             .x = bytes(x),
                                             .y = bytes(forward.y),
                                             .masked = mutable_bytes(masked),
                                             .mean = values(batch.mean),
                                             .scale = values(affine.scale),
                                             .shift = values(affine.shift),
                                             .relu = forward.relu,
                                             .parts = values(parts)});
    }
    GradientsArguments arguments{.parts = values(parts),
                                 .num_parts = static_cast<int>(parts.size(0)),
                                 .num_channels = static_cast<int>(num_channels),
                                 .sums = nullptr,
                                 .invstd = values(batch.invstd),
                                 .dweight = values(gradients.weight),
                                 .dbias = values(gradients.bias),
                                 .mean = values(batch.mean),
                                 .scale = values(affine.scale),
                                 .count = values(batch.count),
                                 .x_factor = values(x_factor),
                                 .constant = values(constant)};
    torch::Tensor sums;
    if (needs_mean && forward.group) {
      sums = at::empty({2, num_channels}, options);
      auto local = arguments;
      local.sums = values(sums);
      local.x_factor = local.constant = nullptr;
      launch_over_channels(kGradients, x, local);
      forward.group->all_reduce(sums);
      arguments.parts = values(sums);
      arguments.num_parts = 1;
      arguments.dweight = arguments.dbias = nullptr;
    }
    launch_over_channels(kGradients, x, arguments);
  }
  if (!needed.x) return gradients;
  if (!needs_mean) x_factor = constant = at::zeros({num_channels}, options);
  gradients.x = at::empty_like(x);
  if (x.numel() == 0) return gradients;
  launch_over_rows(kInputGradient, x, num_parts(x, kMostParts),
                   InputGradientArguments{.rows = rows_of(x),
                                          .dy = bytes(gradients.residual),
                                          .x = bytes(x),
                                          .dx = mutable_bytes(gradients.x),
                                          .scale = values(affine.scale),
                                          .shift = values(affine.shift),
                                          .x_factor = values(x_factor),
                                          .constant = values(constant),
                                          .relu = forward.relu && !masked.defined()});
  return gradients;
}

}  // namespace trainer::nn::fused_norm
