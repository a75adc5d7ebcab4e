#include "nn/fixed_convolution.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>

#include "nn/convolution/convolution.h"
#include "nn/convolution/direct_kernels.h"
#include "nn/fused_norm/kernels.h"
#include "nn/parallel.h"
#include "nn/stored_tensor.h"
#include "trainer/torch.h"

namespace trainer::nn {
namespace {

using convolution::DepthwiseBlocks;
using convolution::DepthwiseShape;
using convolution::DirectShape;
using convolution::kDirectChannels;
using convolution::Range;
using convolution::Tile;
using torch::Tensor;
using Scalars = torch::List<std::optional<at::Scalar>>;
using OptionalText = std::optional<std::string_view>;

// LibTorch does not declare these operators in a header.
using Reorder = Tensor(const Tensor&, at::IntArrayRef padding, at::IntArrayRef stride, at::IntArrayRef dilation, int64_t groups,
                       at::OptionalIntArrayRef input_size);
using Convolve = Tensor(const Tensor&, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef padding,
                        at::IntArrayRef stride, at::IntArrayRef dilation, int64_t groups, std::string_view activation, Scalars,
                        OptionalText algorithm);
using ConvolveAndAdd = Tensor(const Tensor&, const Tensor& added, const Tensor& weight, const std::optional<Tensor>& bias,
                              at::IntArrayRef padding, at::IntArrayRef stride, at::IntArrayRef dilation, int64_t groups,
                              std::string_view operation, std::optional<at::Scalar> alpha, OptionalText activation, Scalars,
                              OptionalText algorithm);

template <class Function>
auto operator_of(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Function>();
}

constexpr std::array<int64_t, 2> kDilation = {1, 1};

constexpr auto kFixedLayout = at::MemoryFormat::ChannelsLast;

std::string_view onednn_name(FusedActivation activation) {
  // In the order of FusedActivation.
  static constexpr std::array<std::string_view, 5> kNames = {"none", "relu", "hardtanh", "hardswish", "swish"};
  return kNames.at(static_cast<size_t>(activation));
}

// The weight [out, in, kernel, kernel] in the order of DirectKernels::convolve.
torch::Tensor packed(const torch::Tensor& weight) {
  const auto rows = weight.permute({2, 3, 1, 0}).contiguous();
  auto result = at::empty({weight.numel()}, weight.options());
  convolution::direct_kernels().pack(values_of<float>(rows), weight.numel() / weight.size(0), weight.size(0),
                                     mutable_values_of<float>(result));
  return result;
}

// y = activation(y * scale + shift + residual) for some pixels. `scale`, `shift`: [channels].
void activate_in_place(const Tensor& y, int64_t first_pixel, int64_t num_pixels, const Tensor& scale, const Tensor& shift,
                       FusedActivation activation, const Tensor& residual = {}) {
  const int64_t channels = y.size(1);
  auto* const values = mutable_values_of<float>(y, first_pixel * channels);
  fused_norm::kernels<float>().normalise({values_of<float>(scale), values_of<float>(shift), activation}, values,
                                         values_of<float>(residual, first_pixel * channels), values, num_pixels, channels);
}

}  // namespace

FixedConvolution::FixedConvolution(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride, int64_t padding,
                                   int64_t groups, std::optional<Tile> tile)
    : out_channels_(weight.size(0)),
      kernel_(weight.size(2)),
      tile_(tile),
      bias_(bias.defined() ? bias : at::zeros({weight.size(0)}, weight.options())),
      ones_(at::ones_like(bias_)),
      zeros_(at::zeros_like(bias_)),
      stride_{stride, stride},
      padding_{padding, padding},
      groups_(groups) {
  if (tile_) {
    kind_ = Kind::kWinograd;
    weight_ = convolution::transformed_weight(weight, *tile_);
  } else if (groups == 1 && out_channels_ % kChannels == 0) {
    kind_ = Kind::kDirect;
    weight_ = packed(weight);
  } else if (convolution::supports_depthwise(x, weight, stride, padding, groups)) {
    kind_ = Kind::kDepthwise;
    weight_ = convolution::depthwise_taps(weight, weight.scalar_type());
  } else {
    static const auto reorder = operator_of<Reorder>("mkldnn::_reorder_convolution_weight");
    weight_ = reorder.call(weight, padding_, stride_, kDilation, groups, x.sizes());
  }
}

bool FixedConvolution::supports(const Tensor& x) {
  return x.is_cpu() && x.scalar_type() == torch::kFloat32 && x.dim() == 4 && x.numel() > 0 && x.is_contiguous(kFixedLayout) &&
         at::hasMKLDNN() && at::globalContext().userEnabledMkldnn() && !at::autocast::is_autocast_enabled(at::kCPU);
}

Tensor FixedConvolution::run(const Tensor& x, FusedActivation activation, const Tensor& residual) const {
  if (kind_ == Kind::kWinograd)
    return convolution::convolve_transformed(x, weight_, {bias_, residual, activation == FusedActivation::kRelu}, *tile_);
  const auto added = residual.defined() ? residual.contiguous(kFixedLayout) : residual;
  if (kind_ == Kind::kDirect) return run_direct(x, activation, added);
  if (kind_ == Kind::kDepthwise) return run_depthwise(x, activation, added);
  return run_onednn(x, activation, added);
}

Tensor FixedConvolution::run_direct(const Tensor& x, FusedActivation activation, const Tensor& residual) const {
  RECORD_FUNCTION("trainer::direct_convolution", c10::ArrayRef<const c10::IValue>{});
  const int64_t padding = padding_[0];
  const int64_t stride = stride_[0];
  const auto padded = padding == 0 ? x : at::constant_pad_nd(x, {padding, padding, padding, padding}).contiguous(kFixedLayout);
  const int64_t channels = x.size(1);
  const int64_t width = padded.size(3);
  const int64_t out_height = (padded.size(2) - kernel_) / stride + 1;
  const int64_t out_width = (width - kernel_) / stride + 1;
  auto y = at::empty({x.size(0), out_channels_, out_height, out_width}, x.options(), kFixedLayout);
  // With a kernel of one pixel, all pixels of the batch are like one line, which can be divided anywhere.
  const bool is_pointwise = kernel_ == 1 && stride == 1;
  const int64_t num_lines = is_pointwise ? x.size(0) * out_height * out_width : x.size(0) * out_height;
  const int64_t pixels_per_line = is_pointwise ? 1 : out_width;
  const int64_t in_image = padded.size(2) * width * channels;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float least = activation == FusedActivation::kRelu || activation == FusedActivation::kRelu6 ? 0 : -kInfinity;
  const float most = activation == FusedActivation::kRelu6 ? 6 : kInfinity;
  const auto compute = [&](int64_t first_line, int64_t count, int64_t first_channel, int64_t end_channel) {
    DirectShape shape{.num_pixels = count * pixels_per_line,
                      .pixels_per_line = pixels_per_line,
                      .line_step = stride * width * channels,
                      .pixel_step = stride * channels,
                      .num_taps = kernel_,
                      .tap_step = width * channels,
                      .depth = kernel_ * channels,
                      .out_channels = out_channels_};
    int64_t from = first_line * channels;
    if (is_pointwise) {
      constexpr int64_t kMostPixels = 48;
      shape.pixels_per_line = ceil_div(count, ceil_div(count, kMostPixels));
      shape.line_step = shape.pixels_per_line * channels;
    } else {
      from = first_line / out_height * in_image + first_line % out_height * shape.line_step;
    }
    const int64_t to = first_line * pixels_per_line * out_channels_;
    convolution::direct_kernels().convolve(shape, values_of<float>(padded, from), values_of<float>(weight_), first_channel, end_channel,
                                           {values_of<float>(bias_), values_of<float>(residual, to), least, most},
                                           mutable_values_of<float>(y, to));
  };
  const bool is_bounded = activation != FusedActivation::kSilu && activation != FusedActivation::kHardswish;
  const auto activate_lines = [&](const Range& lines) {
    const int64_t pixels = (lines.end - lines.begin) * pixels_per_line;
    if (!is_bounded) activate_in_place(y, lines.begin * pixels_per_line, pixels, ones_, zeros_, activation);
  };
  const int64_t num_threads = at::get_num_threads();
  const auto for_each_part = [&](int64_t count, const auto& act) {
    parallel_for(0, num_threads, 1, [&](int64_t begin, int64_t end) {
      act(Range{count * begin / num_threads, count * end / num_threads});
    });
  };
  // Threads share the larger of the two, the weight or the images, so that each reads only its part of it.
  const int64_t num_units = ceil_div(out_channels_, kDirectChannels);
  const bool is_balanced = num_units % num_threads == 0 || num_units >= 4 * num_threads;
  if (x.size(0) == 1 && is_balanced && weight_.numel() > padded.numel()) {
    for_each_part(num_units, [&](const Range& units) {
      compute(0, num_lines, units.begin * kDirectChannels, std::min(units.end * kDirectChannels, out_channels_));
    });
    if (!is_bounded) for_each_part(num_lines, activate_lines);
    return y;
  }
  // The results of so few lines are still in the cache when they are activated.
  constexpr int64_t kPixelsAtOnce = 192;
  const int64_t lines_at_once = is_bounded ? num_lines : ceil_div(kPixelsAtOnce, pixels_per_line);
  for_each_part(num_lines, [&](const Range& lines) {
    for (int64_t line = lines.begin; line < lines.end;) {
      // Lines of two images do not follow each other at the same distance.
      const int64_t end_of_image = is_pointwise ? lines.end : (line / out_height + 1) * out_height;
      const int64_t stop = std::min({lines.end, end_of_image, line + lines_at_once});
      compute(line, stop - line, 0, out_channels_);
      activate_lines({line, stop});
      line = stop;
    }
  });
  return y;
}

Tensor FixedConvolution::run_depthwise(const Tensor& x, FusedActivation activation, const Tensor& residual) const {
  RECORD_FUNCTION("trainer::depthwise_convolution", c10::ArrayRef<const c10::IValue>{});
  const auto shape = convolution::depthwise_shape(x, kernel_, stride_[0], padding_[0]);
  auto y = at::empty({x.size(0), out_channels_, shape.out_height, shape.out_width}, x.options(), kFixedLayout);
  constexpr int64_t kMostRowsAtOnce = 4;
  const int64_t num_threads = at::get_num_threads();
  const int64_t rows_at_once = std::clamp<int64_t>(x.size(0) * shape.out_height / num_threads, 1, kMostRowsAtOnce);
  const DepthwiseBlocks blocks(shape, x.size(0), rows_at_once, num_threads);
  const auto depthwise = convolution::depthwise_kernels<float>().output;
  const int64_t in_image = shape.height * shape.width * shape.channels;
  const int64_t out_row = shape.out_width * shape.channels;
  parallel_for(0, blocks.num_parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      blocks.for_each(part, [&](int64_t image, const Range& rows) {
        const int64_t result = image * shape.out_height * out_row;
        depthwise(shape, values_of<float>(x, image * in_image), values_of<float>(weight_), mutable_values_of<float>(y, result), rows.begin,
                  rows.end);
        const int64_t first_pixel = (image * shape.out_height + rows.begin) * shape.out_width;
        activate_in_place(y, first_pixel, (rows.end - rows.begin) * shape.out_width, ones_, bias_, activation, residual);
      });
    }
  });
  return y;
}

Tensor FixedConvolution::run_onednn(const Tensor& x, FusedActivation activation, const Tensor& residual) const {
  static const auto convolve = operator_of<Convolve>("mkldnn::_convolution_pointwise");
  static const auto convolve_and_add = operator_of<ConvolveAndAdd>("mkldnn::_convolution_pointwise", "binary");
  const auto name = onednn_name(activation);
  Scalars limits;
  if (activation == FusedActivation::kRelu6) {
    limits.push_back(at::Scalar(0.0));
    limits.push_back(at::Scalar(6.0));
  }
  if (!residual.defined()) return convolve.call(x, weight_, bias_, padding_, stride_, kDilation, groups_, name, limits, "");
  // LibTorch 2.11 fails to add maps of one pixel: "could not create a memory".
  if (residual.size(2) * residual.size(3) == 1) {
    const auto y = convolve.call(x, weight_, bias_, padding_, stride_, kDilation, groups_, "none", limits, "").add_(residual);
    return activation == FusedActivation::kRelu ? y.relu_() : y;
  }
  const auto then = activation == FusedActivation::kRelu ? OptionalText(name) : std::nullopt;
  return convolve_and_add.call(x, residual, weight_, bias_, padding_, stride_, kDilation, groups_, "add", std::nullopt, then, limits, "");
}

}  // namespace trainer::nn
