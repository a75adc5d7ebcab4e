#include "nn/convolution/direct_kernels.h"

#include <algorithm>

// Compiled once for each instruction set that Highway supports; the best one is selected at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/convolution/direct_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nn/convolution/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::nn::convolution::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void pack(const float* weight, int64_t num_inputs, int64_t out_channels, float* packed) {
  for_each_column_block<float>(out_channels, [&](auto tag, auto num_vectors, int64_t channel) {
    const int64_t width = static_cast<int64_t>(hn::MaxLanes(tag)) * num_vectors;
    float* to = packed + channel * num_inputs;
    for (int64_t i = 0; i < num_inputs; ++i, to += width) std::copy_n(weight + i * out_channels + channel, width, to);
  });
}

// The finish of a sum in a register.
struct FinishSum {
  const Finish& finish;
  const float* y;
  int64_t channel;  // of the first vector

  template <class D, class V>
  HWY_INLINE V operator()(D tag, V sum, int vector, const float* to) const {
    auto value = hn::Add(sum, hn::LoadU(tag, finish.bias + channel + vector * static_cast<int>(hn::MaxLanes(D()))));
    if (finish.residual != nullptr) value = hn::Add(value, hn::LoadU(tag, finish.residual + (to - y)));
    // Unlike minima and maxima, this keeps NaN on all processors.
    value = hn::IfThenElse(hn::Lt(value, hn::Set(tag, finish.least)), hn::Set(tag, finish.least), value);
    return hn::IfThenElse(hn::Gt(value, hn::Set(tag, finish.most)), hn::Set(tag, finish.most), value);
  }
};

void convolve(const DirectShape& shape, const float* x, const float* packed, int64_t first_channel, int64_t end_channel,
              const Finish& finish, float* y) {
  // The values of a few lines stay in the cache for all channels, and the weight of a few channels for these lines.
  constexpr int64_t kValuesAtOnce = 64 * 1024;
  const int64_t num_lines = ceil_div(shape.num_pixels, shape.pixels_per_line);
  const int64_t values_of_line = shape.line_step + shape.pixels_per_line * shape.out_channels;
  const int64_t lines_at_once = std::max<int64_t>(1, kValuesAtOnce / values_of_line);
  for (int64_t first_line = 0; first_line < num_lines; first_line += lines_at_once) {
    const int64_t end_line = std::min(first_line + lines_at_once, num_lines);
    for_each_column_block<float>(end_channel - first_channel, [&](auto tag, auto num_vectors, int64_t column) {
      const int64_t width = static_cast<int64_t>(hn::MaxLanes(tag)) * num_vectors;
      const int64_t channel = first_channel + column;
      const Planes steps{{1, 0, 0}, {shape.num_taps, shape.tap_step, shape.depth * width}, {shape.depth, 1, width}};
      for (int64_t line = first_line; line < end_line; ++line) {
        const int64_t pixel = line * shape.pixels_per_line;
        multiply_rows<num_vectors, false>(tag, std::min(shape.pixels_per_line, shape.num_pixels - pixel), x + line * shape.line_step,
                                          shape.pixel_step, packed + channel * shape.num_taps * shape.depth,
                                          y + pixel * shape.out_channels + channel, shape.out_channels, steps,
                                          FinishSum{finish, y, channel});
      }
    });
  }
}

DirectKernels FloatDirectKernels() { return {&pack, &convolve}; }

}  // namespace trainer::nn::convolution::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::nn::convolution {

HWY_EXPORT(FloatDirectKernels);

DirectKernels direct_kernels() { return HWY_DYNAMIC_DISPATCH(FloatDirectKernels)(); }

}  // namespace trainer::nn::convolution
#endif
