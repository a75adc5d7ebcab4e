#include "nn/convolution/convolution.h"

#include <ATen/Dispatch.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "nn/convolution/strided_kernels.h"
#include "nn/parallel.h"
#include "nn/stored_tensor.h"
#include "trainer/torch.h"

namespace trainer::nn::convolution {
namespace {

using torch::autograd::AutogradContext;

constexpr auto kLayout = at::MemoryFormat::ChannelsLast;

torch::Tensor strided_weight_gradient(const torch::Tensor& x, const torch::Tensor& dy, const Shape& shape) {
  RECORD_FUNCTION("trainer::strided_weight_gradient", c10::ArrayRef<const c10::IValue>{});
  auto gradient = at::empty({shape.out_channels, shape.in_channels, 3, 3}, x.options(), kLayout).zero_();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "strided_weight_gradient", [&] {
    const auto* input = x.const_data_ptr<scalar_t>();
    const auto* given = dy.const_data_ptr<scalar_t>();
    auto* result = gradient.data_ptr<scalar_t>();
    parallel_for(0, num_gradient_parts(shape), 1,
                 [&](int64_t begin, int64_t end) { add_strided_weight_gradient(shape, input, given, result, begin, end); });
  });
  return gradient;
}

// More tiles reuse the transformed weights more often; fewer tiles keep the transformed images in the cache.
int64_t most_tiles_per_block(int64_t num_channels) { return std::clamp<int64_t>(num_channels * 3 / 8, 24, 96) / 12 * 12; }

// Chooses the block size, a multiple of four tiles, so that all threads have the same number of blocks of about equal size.
int64_t balanced_block(int64_t num_tiles, int64_t num_channels) {
  constexpr int64_t kTilesAtOnce = 4;
  num_tiles = std::max<int64_t>(num_tiles, 1);  // for an empty batch
  const int64_t num_threads = at::get_num_threads();
  const int64_t num_rounds = ceil_div(num_tiles, most_tiles_per_block(num_channels) * num_threads);
  return ceil_div(num_tiles, num_rounds * num_threads * kTilesAtOnce) * kTilesAtOnce;
}

// Calls act(i) for each i below `count` on all threads. A thread whose core is also used by another process gets fewer of the calls.
template <class Act>
void for_each_in_any_order(int64_t count, const Act& act) {
  std::atomic<int64_t> next = 0;
  parallel_for(0, std::min<int64_t>(count, at::get_num_threads()), 1, [&](int64_t /*begin*/, int64_t /*end*/) {
    for (int64_t i = next++; i < count; i = next++) act(i);
  });
}

// Memory of the calling thread, which later calls reuse.
template <class T>
T* thread_memory(int64_t size) {
  thread_local std::vector<T> memory;
  if (static_cast<int64_t>(memory.size()) < size) memory.resize(static_cast<size_t>(size));
  return memory.data();
}

Shape shape_of(const torch::Tensor& x, const torch::Tensor& weight, int64_t stride = 1) {
  return {.num_images = x.size(0),
          .height = x.size(2),
          .width = x.size(3),
          .in_channels = weight.size(1),
          .out_channels = weight.size(0),
          .stride = stride};
}

// The transformed weight for convolve_tiles(). `shape` and `is_reversed` as there.
torch::Tensor transform(const torch::Tensor& weight, const Shape& shape, bool is_reversed, Tile tile) {
  auto transformed = at::empty({num_positions(tile) * shape.in_channels * shape.out_channels}, weight.options());
  AT_DISPATCH_FLOATING_TYPES(weight.scalar_type(), "transform_winograd_weight", [&] {
    const auto* given = weight.const_data_ptr<scalar_t>();
    auto* result = transformed.data_ptr<scalar_t>();
    parallel_for(0, shape.in_channels / kChannels, 1, [&](int64_t begin, int64_t end) {
      kernels<scalar_t>(tile).transform_weights(shape, given, is_reversed, result, begin * kChannels, end * kChannels);
    });
  });
  return transformed;
}

// Computes the output of a convolution of `shape`, which, if the weight was transformed with `is_reversed`, is the input gradient of
// another convolution, to which the weight belongs.
torch::Tensor convolve_tiles(const torch::Tensor& x, const torch::Tensor& transformed, const Addends& addends, const Shape& shape,
                             Tile tile) {
  RECORD_FUNCTION("trainer::winograd_convolution", c10::ArrayRef<const c10::IValue>{});
  auto output = at::empty({shape.num_images, shape.out_channels, shape.height, shape.width}, x.options(), kLayout);
  const int64_t count = num_tiles(shape, tile);
  const int64_t block = balanced_block(count, shape.in_channels);
  dispatch_stored(x.scalar_type(), [&]<class S>(S) {
    using T = Computed<S>;
    const auto* input = values_of<S>(x);
    const auto* weights = values_of<T>(transformed);
    const auto functions = kernels<S>(tile);
    const Epilogue<S> epilogue{values_of<T>(addends.bias), values_of<S>(addends.residual), addends.relu};
    auto* result = mutable_values_of<S>(output);
    for_each_in_any_order(ceil_div(count, block), [&](int64_t i) {
      auto* workspace = thread_memory<T>(convolve_workspace(tile, shape, block));
      functions.convolve(shape, input, weights, epilogue, result, i * block, std::min((i + 1) * block, count), workspace);
    });
  });
  return output;
}

torch::Tensor run(const torch::Tensor& x, const torch::Tensor& weight, const Addends& addends, const Shape& shape, bool is_reversed,
                  Tile tile) {
  return convolve_tiles(x, transform(weight, shape, is_reversed, tile), addends, shape, tile);
}

// The number of values in a block of transformed tiles, input and output gradient together.
int64_t block_size(Tile tile, const Shape& shape, int64_t num_tiles) {
  return num_positions(tile) * (plane_size(num_tiles, shape.in_channels) + plane_size(num_tiles, shape.out_channels));
}

// Each thread sums over its own blocks of tiles. Returns the sums [parts, positions * out * in].
template <class S, class T = Computed<S>>
torch::Tensor sum_by_thread(const S* x, const S* dy, const Shape& shape, Tile tile, const torch::TensorOptions& options) {
  const int64_t block = most_tiles_per_block(shape.in_channels);
  const int64_t count = num_tiles(shape, tile);
  const int64_t num_blocks = ceil_div(count, block);
  const int64_t num_parts = std::clamp<int64_t>(num_blocks, 1, at::get_num_threads());
  const int64_t size = num_positions(tile) * shape.in_channels * shape.out_channels;
  auto sums = at::empty({num_parts * size}, options);
  auto* all = sums.data_ptr<T>();
  parallel_for(0, num_parts, 1, [&](int64_t begin, int64_t end) {
    auto* inputs = thread_memory<T>(block_size(tile, shape, block));
    auto* gradients = inputs + num_positions(tile) * plane_size(block, shape.in_channels);
    for (int64_t part = begin; part < end; ++part) {
      auto* mine = all + part * size;
      std::fill(mine, mine + size, T(0));
      for (int64_t i = part * num_blocks / num_parts; i < (part + 1) * num_blocks / num_parts; ++i) {
        const int64_t first = i * block;
        const int64_t last = std::min(first + block, count);
        kernels<S>(tile).transform_block(shape, x, dy, first, last - first, first, last, inputs, gradients);
        kernels<S>(tile).add_weight_products(shape, inputs, gradients, last - first, mine, 0, num_positions(tile));
      }
    }
  });
  return sums.view({num_parts, size});
}

// For so many channels that a copy of the sums for each thread would be large: all threads transform a large block, then each thread sums
// at its own positions.
template <class S, class T = Computed<S>>
torch::Tensor sum_by_position(const S* x, const S* dy, const Shape& shape, Tile tile, const torch::TensorOptions& options) {
  constexpr int64_t kBlockBytes = 16 * 1024 * 1024;
  const int64_t count = num_tiles(shape, tile);
  const int64_t tile_values = num_positions(tile) * (shape.in_channels + shape.out_channels);
  const int64_t block = std::clamp<int64_t>(kBlockBytes / (tile_values * static_cast<int64_t>(sizeof(T))), 1, std::max<int64_t>(count, 1));
  auto sums = at::zeros({1, num_positions(tile) * shape.in_channels * shape.out_channels}, options);
  const auto transformed = at::empty({block_size(tile, shape, block)}, options);
  auto* inputs = transformed.data_ptr<T>();
  auto* gradients = inputs + num_positions(tile) * plane_size(block, shape.in_channels);
  auto* all = sums.data_ptr<T>();
  for (int64_t first = 0; first < count; first += block) {
    const int64_t last = std::min(first + block, count);
    parallel_for(first, last, 1, [&](int64_t begin, int64_t end) {
      kernels<S>(tile).transform_block(shape, x, dy, first, last - first, begin, end, inputs, gradients);
    });
    parallel_for(0, num_positions(tile), 1, [&](int64_t begin, int64_t end) {
      kernels<S>(tile).add_weight_products(shape, inputs, gradients, last - first, all, begin, end);
    });
  }
  return sums;
}

torch::Tensor weight_gradient(const torch::Tensor& x, const torch::Tensor& dy, const Shape& shape, Tile tile) {
  RECORD_FUNCTION("trainer::winograd_weight_gradient", c10::ArrayRef<const c10::IValue>{});
  constexpr int64_t kLargeSums = 1024 * 1024;
  const auto options = x.options().dtype(computed_type(x.scalar_type())).memory_format(std::nullopt);
  auto gradient = at::empty({shape.out_channels, shape.in_channels, 3, 3}, options, kLayout);
  const bool is_large = num_positions(tile) * shape.in_channels * shape.out_channels > kLargeSums;
  dispatch_stored(x.scalar_type(), [&]<class S>(S) {
    const auto sum = is_large ? &sum_by_position<S> : &sum_by_thread<S>;
    const auto sums = sum(values_of<S>(x), values_of<S>(dy), shape, tile, options);
    parallel_for(0, shape.out_channels, 1, [&](int64_t begin, int64_t end) {
      using T = Computed<S>;
      kernels<S>(tile).finish_weight_gradient(shape, values_of<T>(sums), sums.size(0), mutable_values_of<T>(gradient), begin, end);
    });
  });
  return gradient;
}

// The gradient of a bias, the third input, from that of the output; undefined if it is not needed.
torch::Tensor bias_gradient(AutogradContext& context, const torch::Tensor& dy, const torch::Tensor& weight) {
  if (!context.saved_data["has_bias"].toBool() || !context.needs_input_grad(2)) return {};
  return dy.sum({0, 2, 3}, /*keepdim=*/false, weight.scalar_type());
}

// A convolution by Winograd's algorithm or, with `tile` 0, LibTorch's with this program's gradient of the weight.
class Convolution : public torch::autograd::Function<Convolution> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias, int64_t stride, int64_t tile) {
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["tile"] = tile;
    context->saved_data["has_bias"] = bias.has_value();
    if (tile == 0) return at::conv2d(x, weight, bias, stride, /*padding=*/1);
    return run(x, weight, {.bias = bias.value_or(torch::Tensor())}, shape_of(x, weight), /*is_reversed=*/false, Tile{tile});
  }

  static torch::autograd::variable_list backward(AutogradContext* context, const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto& weight = saved[1];
    const int64_t stride = context->saved_data["stride"].toInt();
    const Tile tile{context->saved_data["tile"].toInt()};
    const bool is_winograd = tile != Tile{0};
    const auto shape = shape_of(x, weight, stride);
    const auto dy = gradients[0].contiguous(kLayout);
    torch::Tensor dx, dw;
    if (context->needs_input_grad(0)) {
      dx = is_winograd ? run(dy, weight, {}, reversed(shape), /*is_reversed=*/true, tile)
                       : std::get<0>(at::convolution_backward(dy, x, weight, /*bias_sizes=*/std::nullopt, stride, /*padding=*/1,
                                                              /*dilation=*/1, /*transposed=*/false, /*output_padding=*/0, /*groups=*/1,
                                                              {true, false, false}));
    }
    if (context->needs_input_grad(1)) dw = is_winograd ? weight_gradient(x, dy, shape, tile) : strided_weight_gradient(x, dy, shape);
    return {dx, dw, bias_gradient(*context, dy, weight), torch::Tensor(), torch::Tensor()};
  }
};

struct DepthwiseResult {
  torch::Tensor dx, dw;
};

// `x`, `dy` and the result's `dx`: channels_last, of the same type.
DepthwiseResult differentiate_depthwise(const torch::Tensor& x, const torch::Tensor& dy, const torch::Tensor& weight,
                                        const DepthwiseShape& shape, bool needs_input, bool needs_weight) {
  RECORD_FUNCTION("trainer::depthwise_gradients", c10::ArrayRef<const c10::IValue>{});
  constexpr int64_t kRowsAtOnce = 8;
  const DepthwiseBlocks blocks(shape, x.size(0), kRowsAtOnce, at::get_num_threads());
  const int64_t num_taps = shape.kernel * shape.kernel;
  const auto computed = computed_type(x.scalar_type());
  const auto taps = depthwise_gradient_taps(weight, shape.stride, computed);
  const auto dx = needs_input ? at::empty_like(x, x.options(), kLayout) : torch::Tensor();
  const auto sums = at::zeros({blocks.num_parts, num_taps, shape.channels}, torch::kFloat64);
  const auto row_sums = at::empty({blocks.num_parts, num_taps, shape.channels}, computed);
  dispatch_stored(x.scalar_type(), [&]<class S>(S) {
    using T = Computed<S>;
    const auto gradients = depthwise_kernels<S>();
    const auto add_rows = [&](int64_t part, int64_t image, const Range& rows) {
      const int64_t in_image = image * shape.height * shape.width * shape.channels;
      const auto* given = values_of<S>(dy, image * shape.out_height * shape.out_width * shape.channels);
      if (needs_weight) {
        const int64_t of_part = part * num_taps * shape.channels;
        gradients.weight_gradient(shape, values_of<S>(x, in_image), given, mutable_values_of<T>(row_sums, of_part),
                                  sums.data_ptr<double>() + of_part, rows.begin, rows.end);
      }
      if (!needs_input) return;
      const auto inputs = shape.share_of_input(rows);
      gradients.input_gradient(shape, given, values_of<T>(taps), mutable_values_of<S>(dx, in_image), inputs.begin, inputs.end);
    };
    parallel_for(0, blocks.num_parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        blocks.for_each(part, [&](int64_t image, const Range& rows) { add_rows(part, image, rows); });
      }
    });
  });
  return {dx, needs_weight ? sums.sum(0).t().reshape(weight.sizes()).to(weight.scalar_type()) : torch::Tensor()};
}

class Depthwise : public torch::autograd::Function<Depthwise> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias, int64_t stride, int64_t padding) {
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["has_bias"] = bias.has_value();
    return at::conv2d(x, weight, bias, stride, padding, /*dilation=*/1, /*groups=*/x.size(1));
  }

  static torch::autograd::variable_list backward(AutogradContext* context, const torch::autograd::variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto& weight = saved[1];
    const auto shape = depthwise_shape(x, weight.size(2), context->saved_data["stride"].toInt(), context->saved_data["padding"].toInt());
    const auto dy = output_gradients[0].contiguous(kLayout);
    const auto [dx, dw] = differentiate_depthwise(x, dy, weight, shape, context->needs_input_grad(0), context->needs_input_grad(1));
    return {dx, dw, bias_gradient(*context, dy, weight), torch::Tensor(), torch::Tensor()};
  }
};

torch::Tensor apply(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t stride, int64_t tile) {
  // An autograd function does not accept undefined tensors.
  const auto given = bias.defined() ? std::optional(bias) : std::nullopt;
  return Convolution::apply(x.contiguous(kLayout), weight.contiguous(kLayout), given, stride, tile);
}

void check(bool is_supported, const torch::Tensor& x, const torch::Tensor& weight) {
  TORCH_CHECK(is_supported, "this convolution does not support an input of shape ", x.sizes(), " with a weight of shape ", weight.sizes());
}

}  // namespace

DepthwiseShape depthwise_shape(const torch::Tensor& x, int64_t kernel, int64_t stride, const Padding& padding) {
  return {.height = x.size(2),
          .width = x.size(3),
          .channels = x.size(1),
          .kernel = kernel,
          .stride = stride,
          .padding = padding.top,
          .column_padding = padding.left,
          .out_height = (x.size(2) + padding.top + padding.bottom - kernel) / stride + 1,
          .out_width = (x.size(3) + padding.left + padding.right - kernel) / stride + 1};
}

torch::Tensor depthwise_taps(const torch::Tensor& weight, torch::ScalarType dtype) { return weight.to(dtype).flatten(1).t().contiguous(); }

torch::Tensor depthwise_gradient_taps(const torch::Tensor& weight, int64_t stride, torch::ScalarType dtype) {
  return depthwise_taps(stride == 1 ? weight.flip({2, 3}) : weight, dtype);
}

bool supports(const torch::Tensor& x, const torch::Tensor& weight, int64_t stride) {
  const bool is_winograd = stride == 1;
  const auto computed = is_winograd ? computed_type(x.scalar_type()) : x.scalar_type();
  const bool is_possible_type = computed == torch::kFloat32 || computed == torch::kFloat64;
  return x.is_cpu() && is_possible_type && x.dim() == 4 && weight.scalar_type() == computed && weight.size(2) == 3 && weight.size(3) == 3 &&
         (!is_winograd || weight.size(0) % kChannels == 0) && weight.size(1) % kChannels == 0;
}

torch::Tensor convolve_strided(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t stride) {
  check(supports(x, weight, stride), x, weight);
  return apply(x, weight, bias, stride, /*tile=*/0);
}

std::optional<Tile> fastest_tile(const torch::Tensor& x, const torch::Tensor& weight, Tile largest) {
  if (!supports(x, weight)) return std::nullopt;
  const auto smallest_side = std::min(x.size(2), x.size(3));
  const auto fewest_channels = std::min(weight.size(0), weight.size(1));
  // Larger transformed weights do not stay in the cache, which makes small batches slower (docs/performance.md).
  constexpr int64_t kMostWeights = 4'500'000;
  const bool can_be_large =
      largest == Tile::k4 && smallest_side > 2 && num_positions(Tile::k4) * weight.size(0) * weight.size(1) <= kMostWeights;
  if (x.scalar_type() == torch::kBFloat16) {
    // LibTorch multiplies bfloat16 twice as fast as float32. Only large tiles save more than that, unless many of them extend beyond the
    // edge.
    constexpr int64_t kFewBFloat16Channels = 64;
    const bool is_filled = 8 * x.size(2) * x.size(3) >= 7 * 16 * tiles_along(x.size(2), Tile::k4) * tiles_along(x.size(3), Tile::k4);
    return can_be_large && is_filled && fewest_channels >= kFewBFloat16Channels ? std::optional(Tile::k4) : std::nullopt;
  }
  if (can_be_large) return Tile::k4;
  constexpr int64_t kFewChannels = 16;
  if (smallest_side > 1 && fewest_channels >= kFewChannels) return Tile::k2;
  return std::nullopt;
}

torch::Tensor convolve(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, Tile tile) {
  check(supports(x, weight), x, weight);
  return apply(x, weight, bias, /*stride=*/1, static_cast<int64_t>(tile));
}

torch::Tensor transformed_weight(const torch::Tensor& weight, Tile tile) {
  const Shape shape{.in_channels = weight.size(1), .out_channels = weight.size(0)};
  return transform(weight.contiguous(kLayout), shape, /*is_reversed=*/false, tile);
}

torch::Tensor convolve_transformed(const torch::Tensor& x, const torch::Tensor& weight, const Addends& addends, Tile tile) {
  const int64_t out_channels = weight.numel() / (num_positions(tile) * x.size(1));
  const Shape shape{.num_images = x.size(0),
                    .height = x.size(2),
                    .width = x.size(3),
                    .in_channels = x.size(1),
                    .out_channels = out_channels,
                    .stride = 1};
  const Addends dense{addends.bias, addends.residual.defined() ? addends.residual.to(x.scalar_type()).contiguous(kLayout) : torch::Tensor(),
                      addends.relu};
  return convolve_tiles(x.contiguous(kLayout), weight, dense, shape, tile);
}

bool supports_depthwise(const torch::Tensor& x, const torch::Tensor& weight, int64_t stride, const Padding& padding, int64_t groups) {
  const auto computed = computed_type(x.scalar_type());
  const bool is_possible_type = computed == torch::kFloat32 || computed == torch::kFloat64;
  const int64_t kernel = weight.size(2);
  // LibTorch's gradients do not need the images in channels_last.
  return x.is_cpu() && is_possible_type && x.dim() == 4 && x.is_contiguous(kLayout) && groups == x.size(1) && groups == weight.size(0) &&
         groups % kFewestChannels == 0 && weight.size(3) == kernel && (kernel == 3 || kernel == 5 || kernel == 7) &&
         (stride == 1 || stride == 2) && std::max({padding.top, padding.left, padding.bottom, padding.right}) < kernel &&
         x.size(2) + padding.top + padding.bottom >= kernel && x.size(3) + padding.left + padding.right >= kernel;
}

torch::Tensor convolve_depthwise(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t stride,
                                 int64_t padding) {
  // An autograd function does not accept undefined tensors.
  const auto given = bias.defined() ? std::optional(bias) : std::nullopt;
  return Depthwise::apply(x, weight, given, stride, padding);
}

}  // namespace trainer::nn::convolution
