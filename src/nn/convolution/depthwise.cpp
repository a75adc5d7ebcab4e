#include "nn/convolution/depthwise.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <optional>

#include "nn/convolution/depthwise_kernels.h"
#include "nn/parallel.h"
#include "nn/stored_tensor.h"
#include "trainer/torch.h"

namespace trainer::nn::convolution {
namespace {

using torch::autograd::AutogradContext;

struct Gradients {
  torch::Tensor input, weight;
};

// `x`, `dy` and the result's `input`: channels_last, of the same type.
Gradients differentiate(const torch::Tensor& x, const torch::Tensor& dy, const torch::Tensor& weight, const DepthwiseShape& shape,
                        bool needs_input, bool needs_weight) {
  RECORD_FUNCTION("trainer::depthwise_gradients", c10::ArrayRef<const c10::IValue>{});
  // So few rows that their values stay in the cache while both gradients read them.
  constexpr int64_t kRowsAtOnce = 8;
  const int64_t out_height = shape.out_height();
  const int64_t num_taps = shape.kernel * shape.kernel;
  const int64_t num_rows = x.size(0) * out_height;
  const int64_t num_parts = std::clamp<int64_t>(num_rows / kRowsAtOnce, 1, at::get_num_threads());
  const auto computed = computed_type(x.scalar_type());
  const auto taps = weight.to(computed).view({shape.channels, num_taps}).t().contiguous();
  const auto dx = needs_input ? at::empty_like(x, x.options(), at::MemoryFormat::ChannelsLast) : torch::Tensor();
  const auto sums = at::zeros({num_parts, num_taps, shape.channels}, torch::kFloat64);
  const auto row_sums = at::empty({num_parts, num_taps, shape.channels}, computed);
  dispatch_stored(x.scalar_type(), [&]<class S>(S) {
    using T = Computed<S>;
    const auto gradients = depthwise_gradients<S>();
    const auto add_rows = [&](int64_t part, int64_t image, int64_t begin, int64_t end) {
      const int64_t in_image = image * shape.height * shape.width * shape.channels;
      const auto* given = values_of<S>(dy, image * out_height * shape.out_width() * shape.channels);
      if (needs_weight) {
        const int64_t of_part = part * num_taps * shape.channels;
        gradients.weight_gradient(shape, values_of<S>(x, in_image), given, mutable_values_of<T>(row_sums, of_part),
                                  sums.data_ptr<double>() + of_part, begin, end);
      }
      if (!needs_input) return;
      const auto in_rows = [&](int64_t row) { return row == out_height ? shape.height : std::min(row * shape.stride, shape.height); };
      gradients.input_gradient(shape, given, values_of<T>(taps), mutable_values_of<S>(dx, in_image), in_rows(begin), in_rows(end));
    };
    parallel_for(0, num_parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        const int64_t end = num_rows * (part + 1) / num_parts;
        for (int64_t row = num_rows * part / num_parts; row < end;) {
          const int64_t in_image = row % out_height;
          const int64_t count = std::min({kRowsAtOnce, out_height - in_image, end - row});
          add_rows(part, row / out_height, in_image, in_image + count);
          row += count;
        }
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
    context->saved_data["bias_type"] = bias ? std::optional(bias->scalar_type()) : std::nullopt;
    return at::conv2d(x, weight, bias, stride, padding, /*dilation=*/1, /*groups=*/x.size(1));
  }

  static torch::autograd::variable_list backward(AutogradContext* context, const torch::autograd::variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto& weight = saved[1];
    const DepthwiseShape shape{.height = x.size(2),
                               .width = x.size(3),
                               .channels = x.size(1),
                               .kernel = weight.size(2),
                               .stride = context->saved_data["stride"].toInt(),
                               .padding = context->saved_data["padding"].toInt()};
    const auto dy = output_gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const auto gradients = differentiate(x, dy, weight, shape, context->needs_input_grad(0), context->needs_input_grad(1));
    const auto& bias_type = context->saved_data["bias_type"];
    torch::Tensor dbias;
    if (!bias_type.isNone() && context->needs_input_grad(2)) dbias = dy.sum({0, 2, 3}, /*keepdim=*/false, bias_type.toScalarType());
    return {gradients.input, gradients.weight, dbias, torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

bool supports_depthwise(const torch::Tensor& x, const torch::Tensor& weight, int64_t stride, int64_t padding, int64_t groups) {
  const auto computed = computed_type(x.scalar_type());
  const bool is_possible_type = computed == torch::kFloat32 || computed == torch::kFloat64;
  const int64_t kernel = weight.size(2);
  // LibTorch's gradients do not need the images in channels_last.
  return x.is_cpu() && is_possible_type && x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast) && groups == x.size(1) &&
         groups == weight.size(0) && groups % kChannels == 0 && weight.size(3) == kernel && (kernel == 3 || kernel == 5 || kernel == 7) &&
         (stride == 1 || stride == 2) && padding < kernel && x.size(2) + 2 * padding >= kernel && x.size(3) + 2 * padding >= kernel;
}

torch::Tensor convolve_depthwise(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t stride,
                                 int64_t padding) {
  // An autograd function does not accept undefined tensors.
  const auto given = bias.defined() ? std::optional(bias) : std::nullopt;
  return Depthwise::apply(x, weight, given, stride, padding);
}

}  // namespace trainer::nn::convolution
