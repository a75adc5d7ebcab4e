#include <ATen/record_function.h>

#include <algorithm>
#include <vector>

#include "nn/convolution/convolution.h"
#include "nn/convolution/depthwise_kernels.h"
#include "nn/fused_norm/passes.h"
#include "nn/parallel.h"

namespace trainer::nn::fused_norm {
namespace {

using convolution::DepthwiseBlocks;
using convolution::DepthwiseShape;
using convolution::Range;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr auto kBlockLayout = at::MemoryFormat::ChannelsLast;

Range input_rows_of(const DepthwiseShape& shape, const Range& output) {
  const int64_t first = output.begin * shape.stride - shape.padding;
  const int64_t last = (output.end - 1) * shape.stride - shape.padding + shape.kernel;
  return {std::clamp<int64_t>(first, 0, shape.height), std::clamp<int64_t>(last, 0, shape.height)};
}

// The rows of the output that depend on rows of the input.
Range output_rows_of(const DepthwiseShape& shape, const Range& input) {
  const int64_t first = std::max<int64_t>(0, input.begin + shape.padding - shape.kernel + shape.stride) / shape.stride;
  const int64_t end = (input.end - 1 + shape.padding) / shape.stride + 1;
  return {std::min(first, shape.out_height), std::min(end, shape.out_height)};
}

// Neighbouring rows of an image that is computed row by row.
template <class S>
class RowWindow {
 public:
  RowWindow(int64_t values_per_row, int64_t most_rows)
      : values_per_row_(values_per_row), values_(static_cast<size_t>(values_per_row * most_rows)) {}

  void begin_image() { rows_ = {0, 0}; }

  // Moves forward to `rows`. Calls compute(first row, number of rows, to) for those that the window did not have. Returns the position that
  // row 0 would have.
  template <class Compute>
  S* move_to(const Range& rows, const Compute& compute) {
    const Range kept = {std::clamp(rows.begin, rows_.begin, rows_.end), rows_.end};
    const bool keeps = rows.begin >= rows_.begin && kept.end > kept.begin && rows.begin < rows_.end;
    const auto at = [&](int64_t row) { return values_.data() + (row - rows.begin) * values_per_row_; };
    int64_t next = rows.begin;
    if (keeps) {
      const auto* from = values_.data() + (kept.begin - rows_.begin) * values_per_row_;
      std::copy(from, from + (kept.end - kept.begin) * values_per_row_, values_.data());
      next = kept.end;
    }
    if (next < rows.end) compute(next, rows.end - next, at(next));
    rows_ = {rows.begin, std::max(next, rows.end)};
    return at(0);
  }

 private:
  int64_t values_per_row_;
  std::vector<S> values_;
  Range rows_ = {0, 0};  // that the window has
};

template <class S>
DepthwiseBlocks blocks_of(const DepthwiseShape& shape, int64_t num_images) {
  constexpr int64_t kBytes = 128 * 1024;
  const auto bytes_of_row = shape.width * shape.channels * shape.stride * static_cast<int64_t>(sizeof(S));
  return {shape, num_images, std::clamp<int64_t>(kBytes / bytes_of_row, 1, 16), at::get_num_threads()};
}

// The shape of a convolution whose input has columns of zeros at both sides.
DepthwiseShape with_padded_columns(const DepthwiseShape& shape) {
  auto padded = shape;
  padded.width = std::max(shape.column_padding + shape.width, (shape.out_width - 1) * shape.stride + shape.kernel);
  padded.column_padding = 0;
  return padded;
}

// Rows of an image after a normalisation and its activation, with columns of zeros at both sides.
template <class S>
class ActivatedRows {
 public:
  // `most_rows`: of the output that are computed at once.
  ActivatedRows(const DepthwiseShape& shape, const Operation<Computed<S>>& operation, int64_t most_rows)
      : shape_(shape),
        operation_(operation),
        normalise_(kernels<S>().normalise),
        padded_row_(with_padded_columns(shape).width * shape.channels),
        window_(padded_row_, most_rows * shape.stride + shape.kernel) {}

  // Moves to the rows that `rows` of the output depend on, forward in the same image. Returns the position of row 0. `image`: before the
  // normalisation.
  const S* move_to(const Range& rows, const S* image) {
    const int64_t zeros = shape_.column_padding * shape_.channels;
    const int64_t values = shape_.width * shape_.channels;
    return window_.move_to(input_rows_of(shape_, rows), [&](int64_t row, int64_t num_rows, S* to) {
      for (; num_rows > 0; --num_rows, ++row, to += padded_row_) {
        std::fill_n(to, zeros, S());
        normalise_(operation_, image + row * values, nullptr, to + zeros, shape_.width, shape_.channels);
        std::fill_n(to + zeros + values, padded_row_ - zeros - values, S());
      }
    });
  }
  void begin_image() { window_.begin_image(); }

 private:
  const DepthwiseShape shape_;
  const Operation<Computed<S>> operation_;
  decltype(Kernels<S>::normalise) normalise_;
  int64_t padded_row_;
  RowWindow<S> window_;
};

struct Convolved {
  torch::Tensor y;
  torch::Tensor moments;  // [2C + 1]
};

// The convolution of activation(x * scale + shift).
Convolved convolve(const torch::Tensor& x, const ScaleAndShift& affine, FusedActivation activation, const torch::Tensor& weight,
                   const DepthwiseShape& shape) {
  const auto y = at::empty({x.size(0), shape.channels, shape.out_height, shape.out_width}, x.options(), kBlockLayout);
  const auto taps = convolution::depthwise_taps(weight, affine.scale.scalar_type());
  const int64_t channels = shape.channels;
  torch::Tensor each;
  dispatch_stored(x.scalar_type(), [&]<class S>(S) {
    const auto blocks = blocks_of<S>(shape, x.size(0));
    const auto depthwise = convolution::depthwise_kernels<S>();
    const auto padded = with_padded_columns(shape);
    const int64_t out_row = shape.out_width * channels;
    each = at::zeros({blocks.num_parts, 2 * channels + 1}, torch::kFloat64);
    parallel_for(0, blocks.num_parts, 1, [&](int64_t first, int64_t last) {
      ActivatedRows<S> activated(shape, operation_of<S>(affine, activation), blocks.rows_at_once);
      for (int64_t part = first; part < last; ++part) {
        double* const mean = each.data_ptr<double>() + part * (2 * channels + 1);
        double* const squares = mean + channels;
        int64_t count = 0;
        activated.begin_image();
        blocks.for_each(part, [&](int64_t image, const Range& rows) {
          if (rows.begin == 0) activated.begin_image();
          const S* const inputs = activated.move_to(rows, values_of<S>(x, image * shape.height * shape.width * channels));
          S* const result = mutable_values_of<S>(y, image * shape.out_height * out_row);
          depthwise.output(padded, inputs, values_of<Computed<S>>(taps), result, rows.begin, rows.end);
          const int64_t num_values = (rows.end - rows.begin) * shape.out_width;
          kernels<S>().moments(result + rows.begin * out_row, num_values, channels, count, mean, squares);
          count += num_values;
        });
        for (int64_t c = 0; c < channels; ++c) squares[c] /= static_cast<double>(count);
        mean[2 * channels] = static_cast<double>(count);
      }
    });
  });
  return {y, each.size(0) == 1 ? each[0] : merge_moments(each)};
}

struct InnerGradients {
  torch::Tensor dz;      // of the activation after the first normalisation
  torch::Tensor sums;    // gradient_sums() of the first normalisation
  torch::Tensor weight;  // [C, 1, kernel, kernel], float64
};

InnerGradients differentiate(const torch::Tensor& dy, const Forward& first, const Forward& second, const InputFactors& factors,
                             const torch::Tensor& weight, const DepthwiseShape& shape) {
  const auto& x = first.x;
  const auto computed = first.statistics.affine.scale.scalar_type();
  const auto dz = at::empty_like(x);
  const auto taps = convolution::depthwise_gradient_taps(weight, shape.stride, computed);
  const auto mean = first.statistics.batch.mean.to(computed);
  const int64_t channels = shape.channels;
  const int64_t num_taps = shape.kernel * shape.kernel;
  torch::Tensor sums, weight_sums;
  dispatch_stored(x.scalar_type(), [&]<class S>(S) {
    using T = Computed<S>;
    const auto blocks = blocks_of<S>(shape, x.size(0));
    const auto depthwise = convolution::depthwise_kernels<S>();
    const auto norm = kernels<S>();
    const auto of_first = operation_of<S>(first.statistics.affine, first.activation);
    const auto of_second = operation_of<S>(second.statistics.affine, second.activation);
    const auto padded = with_padded_columns(shape);
    const int64_t in_row = shape.width * channels;
    const int64_t out_row = shape.out_width * channels;
    sums = at::zeros({blocks.num_parts, 2, channels}, torch::kFloat64);
    weight_sums = at::zeros({blocks.num_parts, num_taps, channels}, torch::kFloat64);
    parallel_for(0, blocks.num_parts, 1, [&](int64_t begin, int64_t end) {
      ActivatedRows<S> activated_rows(shape, of_first, blocks.rows_at_once);
      RowWindow<S> gradient_rows(out_row, blocks.rows_at_once + 2 * shape.kernel);
      std::vector<T> workspace(static_cast<size_t>(num_taps * channels));
      for (int64_t part = begin; part < end; ++part) {
        double* const sum = sums.data_ptr<double>() + part * 2 * channels;
        double* const weight_sum = weight_sums.data_ptr<double>() + part * num_taps * channels;
        const auto begin_image = [&] {
          activated_rows.begin_image();
          gradient_rows.begin_image();
        };
        begin_image();
        blocks.for_each(part, [&](int64_t image, const Range& rows) {
          if (rows.begin == 0) begin_image();
          const auto inputs = shape.share_of_input(rows);
          const auto needed = output_rows_of(shape, inputs);
          const int64_t in_image = image * shape.height * in_row;
          const int64_t out_image = image * shape.out_height * out_row;
          const S* const gradients = gradient_rows.move_to(
              {std::min(needed.begin, rows.begin), std::max(needed.end, rows.end)}, [&](int64_t row, int64_t num_rows, S* to) {
                const int64_t at = out_image + row * out_row;
                norm.input_gradient(of_second, values_of<S>(dy, at), values_of<S>(second.x, at), of_second.scale, values_of<T>(factors.x),
                                    values_of<T>(factors.constant), to, num_rows * shape.out_width, channels);
              });
          const S* const activated = activated_rows.move_to(rows, values_of<S>(x, in_image));
          depthwise.weight_gradient(padded, activated, gradients, workspace.data(), weight_sum, rows.begin, rows.end);
          depthwise.input_gradient(shape, gradients, values_of<T>(taps), mutable_values_of<S>(dz, in_image), inputs.begin, inputs.end);
          const int64_t at = in_image + inputs.begin * in_row;
          norm.gradient_sums(of_first, values_of<S>(dz, at), values_of<S>(x, at), nullptr, values_of<T>(mean), mutable_values_of<S>(dz, at),
                             (inputs.end - inputs.begin) * shape.width, channels, sum, sum + channels);
        });
      }
    });
  });
  return {dz, sums.sum(0), weight_sums.sum(0).t().reshape(weight.sizes())};
}

// Statistics as saved variables.
void append(const Statistics& statistics, variable_list& to) {
  const auto& [batch, affine] = statistics;
  to.insert(to.end(), {batch.mean, batch.invstd, batch.count, affine.scale, affine.shift});
}
Statistics statistics_from(const variable_list& saved, size_t first) {
  return {.batch = {.mean = saved[first], .invstd = saved[first + 1], .count = saved[first + 2]},
          .affine = {.scale = saved[first + 3], .shift = saved[first + 4]}};
}

class NormaliseDepthwise : public torch::autograd::Function<NormaliseDepthwise> {
 public:
  // The parameters of the block are arguments, so that they get gradients.
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& /*first_weight*/,
                               const torch::Tensor& /*first_bias*/, const torch::Tensor& weight, const torch::Tensor& /*second_weight*/,
                               const torch::Tensor& /*second_bias*/, const DepthwiseBlock& block) {
    RECORD_FUNCTION("trainer::normalise_depthwise", c10::ArrayRef<const c10::IValue>{});
    const auto first = joined_statistics(local_moments(x), x.sizes(), block.first);
    const auto shape = convolution::depthwise_shape(x, weight.size(2), block.stride, block.padding);
    const auto [y, moments] = convolve(x, first.affine, block.first_activation, weight, shape);
    const auto second = joined_statistics(moments, y.sizes(), block.second);
    auto z = at::empty_like(y);
    normalise_rows(y, {}, second.affine, block.second_activation, z);
    variable_list saved = {x, y, weight};
    append(first, saved);
    append(second, saved);
    context->save_for_backward(std::move(saved));
    context->saved_data["stride"] = block.stride;
    const auto& padding = block.padding;
    context->saved_data["padding"] = std::vector<int64_t>{padding.top, padding.left, padding.bottom, padding.right};
    context->saved_data["first_activation"] = static_cast<int64_t>(block.first_activation);
    context->saved_data["second_activation"] = static_cast<int64_t>(block.second_activation);
    context->saved_data["first_group"] = hold(block.first.group);
    context->saved_data["second_group"] = hold(block.second.group);
    return z;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    RECORD_FUNCTION("trainer::normalise_depthwise_backward", c10::ArrayRef<const c10::IValue>{});
    TORCH_CHECK(!at::GradMode::is_enabled(), "fused batch normalisation does not support second derivatives; set runtime.fuse: off");
    const auto saved = context->get_saved_variables();
    const auto& data = context->saved_data;
    const auto forward_of = [&](size_t x, size_t statistics, const char* activation, const char* group) {
      return Forward{.x = saved[x],
                     .y = {},
                     .statistics = statistics_from(saved, statistics),
                     .activation = FusedActivation{static_cast<int>(data.at(activation).toInt())},
                     .is_training = true,
                     .group = held<distributed::ProcessGroup>(data.at(group))};
    };
    const auto first = forward_of(0, 3, "first_activation", "first_group");
    const auto second = forward_of(1, 8, "second_activation", "second_group");
    const auto& weight = saved[2];
    const auto needed_of = [&](size_t norm_weight) {
      return Needed{.weight = context->needs_input_grad(norm_weight), .bias = context->needs_input_grad(norm_weight + 1)};
    };
    const auto dz = output_gradients[0].contiguous(kBlockLayout);
    const auto second_sums = gradient_sums(dz, second, {});
    const auto of_second = parameter_gradients(second, second_sums, needed_of(4));
    const auto padding = data.at("padding").toIntVector();
    const auto shape = convolution::depthwise_shape(first.x, weight.size(2), data.at("stride").toInt(),
                                                    {padding.at(0), padding.at(1), padding.at(2), padding.at(3)});
    const auto inner = differentiate(dz, first, second, input_factors(second, second_sums), weight, shape);
    const auto of_first = parameter_gradients(first, inner.sums, needed_of(1));
    torch::Tensor dx;
    if (context->needs_input_grad(0)) {
      input_gradient(inner.dz, first.x, first.statistics.affine, FusedActivation::kNone, input_factors(first, inner.sums), inner.dz);
      dx = inner.dz;
    }
    const auto dw = context->needs_input_grad(3) ? inner.weight.to(weight.scalar_type()) : torch::Tensor();
    return {dx, of_first.weight, of_first.bias, dw, of_second.weight, of_second.bias, torch::Tensor()};
  }
};

}  // namespace

bool supports(const torch::Tensor& x, const DepthwiseBlock& block) {
  if (!supports(x, {}, block.first) || block.first.gpu || x.numel() <= x.size(1) || block.weight.scalar_type() != x.scalar_type() ||
      !convolution::supports_depthwise(x, block.weight, block.stride, block.padding, x.size(1))) {
    return false;
  }
  const auto shape = convolution::depthwise_shape(x, block.weight.size(2), block.stride, block.padding);
  return x.size(0) * shape.out_height * shape.out_width > 1 && block.second.weight.scalar_type() == block.first.weight.scalar_type();
}

torch::Tensor normalise_depthwise(const torch::Tensor& x, const DepthwiseBlock& block) {
  return NormaliseDepthwise::apply(x, block.first.weight, block.first.bias, block.weight, block.second.weight, block.second.bias, block);
}

}  // namespace trainer::nn::fused_norm
