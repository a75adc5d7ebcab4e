#include "nn/fused_norm/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "nn/batch_norm.h"
#include "nn/fused_norm/gpu_arguments.h"
#include "trainer/error.h"
#include "trainer/torch.h"

namespace trainer::nn::fused_norm {
namespace {

constexpr int64_t kThreads = 256;   // of a block over rows that computes no sums
constexpr int64_t kFewestRows = 4;  // of a thread; with fewer, fewer blocks are launched
// Blocks that compute sums. More would make the sums over all blocks slower. The number does not depend on the GPU, so that all kinds of
// GPUs add in the same order.
constexpr int64_t kSumBlocks = 128;
constexpr int64_t kMostBlocksInY = 65535;  // CUDA's limit
// Groups of channels: 32 vectors of at least 4 channels each.
constexpr int64_t kMostGroups = GpuKernels::kMostChannels / (32 * 4);

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

Rows rows_of(const torch::Tensor& x) { return {.num_rows = x.numel() / x.size(1), .num_channels = static_cast<int>(x.size(1))}; }

}  // namespace

// The blocks of a kernel over rows.
struct RowShape {
  int64_t threads_x, threads_y, blocks_x, blocks_y;

  RowShape(const torch::Tensor& x, int64_t num_threads, int64_t most_blocks) {
    const int64_t num_vectors = x.size(1) * x.element_size() / 16;
    threads_x = std::min<int64_t>(32, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_vectors))));
    threads_y = num_threads / threads_x;
    blocks_x = divide_up(num_vectors, threads_x);
    const int64_t most = std::min(kMostBlocksInY, std::max<int64_t>(1, most_blocks / blocks_x));
    blocks_y = std::clamp<int64_t>(divide_up(rows_of(x).num_rows, threads_y * kFewestRows), 1, most);
  }
};

namespace {

RowShape sum_shape(const torch::Tensor& x) { return {x, kSumThreads, kSumBlocks}; }
RowShape elementwise_shape(const torch::Tensor& x) { return {x, kThreads, std::numeric_limits<int64_t>::max()}; }

// A tensor for results of sums over the rows of x, which no kernel writes if x is empty.
torch::Tensor sums_over(const torch::Tensor& x, at::IntArrayRef sizes) {
  const auto options = x.options().dtype(torch::kFloat32);
  return x.numel() > 0 ? at::empty(sizes, options) : at::zeros(sizes, options);
}

float* values(const torch::Tensor& tensor) { return tensor.defined() ? static_cast<float*>(tensor.mutable_data_ptr()) : nullptr; }
const float* const_values(const torch::Tensor& tensor) { return static_cast<const float*>(tensor.const_data_ptr()); }

GpuActivation on_gpu(FusedActivation activation) {
  static_assert(static_cast<int>(kGpuSilu) == static_cast<int>(FusedActivation::kSilu), "GpuActivation equals FusedActivation");
  return static_cast<GpuActivation>(activation);
}

const void* bytes(const torch::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }
void* mutable_bytes(const torch::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

const char* type_name(torch::ScalarType dtype) {
  return dtype == torch::kBFloat16 ? "BFloat16" : dtype == torch::kFloat16 ? "Float16" : "float";
}

}  // namespace

bool GpuKernels::supports(const torch::Tensor& tensor) const {
  const auto dtype = tensor.scalar_type();
  // Kernels access 16 bytes at once, and a view may begin between two multiples of 16.
  return tensor.device().type() == device_type_ && reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0 &&
         (dtype == torch::kFloat32 || dtype == torch::kBFloat16 || dtype == torch::kFloat16);
}

const GpuKernels::Kernels& GpuKernels::kernels_for(const torch::Tensor& x, FusedActivation activation) const {
  const std::lock_guard lock(mutex_);
  const std::tuple key(x.scalar_type(), activation, static_cast<int>(x.get_device()));
  if (const auto found = kernels_.find(key); found != kernels_.end()) return found->second;
  const auto source = fmt::format(
      "#define TRAINER_VALUE {}\n#define TRAINER_KERNEL(name) extern \"C\" __global__ void __launch_bounds__({}) name\n"
      "#define TRAINER_UNROLL _Pragma(\"unroll\")\n"
      "#define TRAINER_ACTIVATION(used) ((used) == kGpuNone ? kGpuNone : static_cast<GpuActivation>({}))\n{}{}",
      type_name(x.scalar_type()), kSumThreads, static_cast<int>(activation), kGpuArguments, kGpuKernels);
  try {
    const auto compiled = cuda_.compile(source, {kNames.begin(), kNames.end()}, x.get_device());
    Kernels kernels{.functions = {}, .num_arrived = at::zeros({kMostGroups}, x.options().dtype(torch::kInt32))};
    std::ranges::copy(compiled, kernels.functions.begin());
    return kernels_.emplace(key, std::move(kernels)).first->second;
  } catch (const c10::AcceleratorError&) {
    throw;  // the device has failed, perhaps earlier
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    throw Error(fmt::format("the kernels of runtime.fuse: on cannot be compiled for this GPU ({}); set runtime.fuse: auto",
                            error.what_without_backtrace()));
  }
}

unsigned* GpuKernels::num_arrived(const torch::Tensor& x) const {
  return static_cast<unsigned*>(kernels_for(x).num_arrived.mutable_data_ptr());
}

template <class Arguments>
void GpuKernels::launch_over_rows(const Kernels& kernels, Kernel kernel, const torch::Tensor& x, const RowShape& shape,
                                  const Arguments& arguments) const {
  cuda_.launch(kernels.functions[kernel], x.get_device(),
               {.blocks = {static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y)},
                .threads = {static_cast<unsigned>(shape.threads_x), static_cast<unsigned>(shape.threads_y)}},
               &arguments);
}

template <class Arguments>
void GpuKernels::launch_over_channels(Kernel kernel, const torch::Tensor& x, const Arguments& arguments) const {
  constexpr int64_t kChannelsOfBlock = 64;
  cuda_.launch(kernels_for(x).functions[kernel], x.get_device(),
               {.blocks = {static_cast<unsigned>(divide_up(x.size(1), kChannelsOfBlock)), 1}, .threads = {kChannelsOfBlock, 1}},
               &arguments);
}

Statistics GpuKernels::statistics(const torch::Tensor& x, const Layer& layer) const {
  const int64_t num_channels = x.size(1);
  const auto options = x.options().dtype(torch::kFloat32);
  const auto results = at::empty({4, num_channels}, options);
  const Statistics statistics{.batch = {.mean = results[0], .invstd = results[1], .count = at::empty({1}, options)},
                              .affine = {.scale = results[2], .shift = results[3]}};
  StatisticsArguments arguments{.parts = nullptr,
                                .num_parts = 0,
                                .num_channels = static_cast<int>(num_channels),
                                .batch_weight = layer.batch_weight,
                                .eps = layer.eps,
                                .weight = const_values(layer.weight),
                                .bias = const_values(layer.bias),
                                .running_mean = values(layer.running_mean),
                                .running_var = values(layer.running_var),
                                .mean = values(statistics.batch.mean),
                                .invstd = values(statistics.batch.invstd),
                                .scale = values(statistics.affine.scale),
                                .shift = values(statistics.affine.shift),
                                .count = values(statistics.batch.count)};
  if (!layer.is_training) {
    launch_over_channels(kStatistics, x, arguments);
    return statistics;
  }
  const auto merged = layer.group ? sums_over(x, {2 * num_channels + 1}) : torch::Tensor();
  if (x.numel() > 0) {
    const auto shape = sum_shape(x);
    const auto parts = at::empty({shape.blocks_y, 2 * num_channels + 1}, options);
    launch_over_rows(kernels_for(x), kMoments, x, shape,
                     MomentsArguments{.rows = rows_of(x),
                                      .x = bytes(x),
                                      .parts = values(parts),
                                      .num_arrived = num_arrived(x),
                                      .merged = values(merged),
                                      .statistics = arguments});
  }
  if (!layer.group) return statistics;
  const auto of_ranks = layer.group->all_gather(merged);
  // Two values on this rank are sufficient. Otherwise the sum over all ranks is needed, and reading it requires waiting for the device.
  if (rows_of(x).num_rows < 2) check_count(of_ranks.select(1, 2 * num_channels).sum().item<double>(), x.sizes(), *layer.group);
  arguments.parts = const_values(of_ranks);
  arguments.num_parts = static_cast<int>(of_ranks.size(0));
  launch_over_channels(kStatistics, x, arguments);
  return statistics;
}

void GpuKernels::normalise(const torch::Tensor& x, const torch::Tensor& residual, const ScaleAndShift& affine, FusedActivation activation,
                           const torch::Tensor& y) const {
  if (x.numel() == 0) return;
  launch_over_rows(kernels_for(x, activation), kNormalise, x, elementwise_shape(x),
                   NormaliseArguments{.rows = rows_of(x),
                                      .x = bytes(x),
                                      .residual = bytes(residual),
                                      .y = mutable_bytes(y),
                                      .scale = values(affine.scale),
                                      .shift = values(affine.shift),
                                      .activation = on_gpu(activation)});
}

Gradients GpuKernels::differentiate(const torch::Tensor& output_gradient, const Forward& forward, const Needed& needed) const {
  const auto& x = forward.x;
  const auto& [batch, affine] = forward.statistics;
  const int64_t num_channels = x.size(1);
  const auto options = x.options().dtype(torch::kFloat32);
  // A view may begin at an address that is not a multiple of 16.
  const bool is_aligned = reinterpret_cast<uintptr_t>(bytes(output_gradient)) % 16 == 0;
  const auto dy = is_aligned ? output_gradient : output_gradient.clone();
  // With a ReLU and a residual, the gradient of the residual is the masked dy.
  const auto masked = forward.y.defined() ? at::empty_like(x) : torch::Tensor();
  Gradients gradients{.residual = masked.defined() ? masked : dy};
  if (needed.weight) gradients.weight = sums_over(x, {num_channels});
  if (needed.bias) gradients.bias = sums_over(x, {num_channels});
  const bool needs_mean = needed.x && forward.is_training;
  const bool is_joined = needs_mean && forward.group;
  const auto x_factor = needs_mean ? at::empty({num_channels}, options) : torch::Tensor();
  const auto constant = needs_mean ? at::empty({num_channels}, options) : torch::Tensor();
  const auto sums = is_joined ? sums_over(x, {2, num_channels}) : torch::Tensor();
  GradientsArguments arguments{.num_channels = static_cast<int>(num_channels),
                               .sums = values(sums),
                               .invstd = values(batch.invstd),
                               .dweight = values(gradients.weight),
                               .dbias = values(gradients.bias),
                               .mean = values(batch.mean),
                               .scale = values(affine.scale),
                               .count = values(batch.count),
                               .x_factor = is_joined ? nullptr : values(x_factor),
                               .constant = values(constant)};
  if (x.numel() > 0 && (needed.weight || needed.bias || forward.is_training || masked.defined())) {
    const auto shape = sum_shape(x);
    const auto parts = at::empty({shape.blocks_y, 2, num_channels}, options);
    launch_over_rows(kernels_for(x, forward.activation), kGradientSums, x, shape,
                     GradientSumsArguments{.rows = rows_of(x),
                                           .dy = bytes(dy),
                                           .x = bytes(x),
                                           .y = bytes(forward.y),
                                           .masked = mutable_bytes(masked),
                                           .shift = values(affine.shift),
                                           .activation = on_gpu(forward.activation),
                                           .parts = values(parts),
                                           .num_arrived = num_arrived(x),
                                           .gradients = arguments});
  }
  if (is_joined) {
    forward.group->all_reduce(sums);
    arguments.dweight = arguments.dbias = nullptr;
    arguments.x_factor = values(x_factor);
    launch_over_channels(kGradients, x, arguments);
  }
  if (!needed.x) return gradients;
  gradients.x = at::empty_like(x);
  if (x.numel() == 0) return gradients;
  launch_over_rows(kernels_for(x, forward.activation), kInputGradient, x, elementwise_shape(x),
                   InputGradientArguments{.rows = rows_of(x),
                                          .dy = bytes(gradients.residual),
                                          .x = bytes(x),
                                          .dx = mutable_bytes(gradients.x),
                                          .scale = values(affine.scale),
                                          .shift = values(affine.shift),
                                          .x_factor = values(x_factor),
                                          .constant = values(constant),
                                          .activation = masked.defined() ? kGpuNone : on_gpu(forward.activation)});
  return gradients;
}

}  // namespace trainer::nn::fused_norm
