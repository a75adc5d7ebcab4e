#include "nn/convolution/strided_kernels.h"

#include <algorithm>

// Compiled once for each instruction set that Highway supports; the best one is selected at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/convolution/strided_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nn/convolution/products-inl.h"

#ifndef TRAINER_STRIDED_PARTS
#define TRAINER_STRIDED_PARTS
namespace trainer::nn::convolution {

// The weight gradient is computed in parts, each for one position of the kernel and at most this many output channels.
constexpr int64_t kPartChannels = 24;

inline int64_t parts_of_position(const Shape& shape) { return (shape.out_channels + kPartChannels - 1) / kPartChannels; }
inline int64_t size_after_stride(int64_t size, int64_t stride) { return (size - 1) / stride + 1; }

// The range of output indices whose input at `offset` (0 to 2) of the kernel is inside the image.
struct Inside {
  int64_t begin, end;
};
inline Inside inside(int64_t size, int64_t stride, int64_t offset) {
  const int64_t end = size < offset ? 0 : std::min(size_after_stride(size, stride), (size - offset) / stride + 1);
  return {offset == 0 ? int64_t{1} : int64_t{0}, end};
}

}  // namespace trainer::nn::convolution
#endif

HWY_BEFORE_NAMESPACE();
namespace trainer::nn::convolution::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A separate function, because inside add_part() the compiler would keep the sums of the innermost loop in memory.
template <int kVectors, class D, class T = hn::TFromD<D>>
HWY_NOINLINE void multiply_part(D tag, int64_t num_rows, const T* output_gradient, const T* input, T* gradient, int64_t gradient_row,
                                const Planes& steps) {
  multiply_rows<kVectors, /*kAdds=*/true>(tag, num_rows, output_gradient, 1, input, gradient, gradient_row, steps);
}

// Adds the products of `count` images to one part of the gradient.
template <class T>
void add_part(const Shape& shape, const T* input, const T* output_gradient, int64_t count, int64_t part, T* gradient) {
  const int64_t position = part / parts_of_position(shape);
  const int64_t channel = part % parts_of_position(shape) * kPartChannels;
  const int64_t row = position / 3, column = position % 3;
  const auto rows = inside(shape.height, shape.stride, row);
  const auto columns = inside(shape.width, shape.stride, column);
  if (rows.begin >= rows.end || columns.begin >= columns.end) return;
  const int64_t num_in = shape.in_channels, num_out = shape.out_channels;
  const int64_t out_height = size_after_stride(shape.height, shape.stride), out_width = size_after_stride(shape.width, shape.stride);
  input += ((rows.begin * shape.stride + row - 1) * shape.width + columns.begin * shape.stride + column - 1) * num_in;
  output_gradient += (rows.begin * out_width + columns.begin) * num_out + channel;
  gradient += (channel * 9 + position) * num_in;
  const Planes steps{{count, out_height * out_width * num_out, shape.height * shape.width * num_in},
                     {rows.end - rows.begin, out_width * num_out, shape.stride * shape.width * num_in},
                     {columns.end - columns.begin, num_out, shape.stride * num_in}};
  for_each_column_block<T>(num_in, [&](auto tag, auto num_vectors, int64_t first) {
    multiply_part<decltype(num_vectors)::value>(tag, std::min(kPartChannels, num_out - channel), output_gradient, input + first,
                                                gradient + first, 9 * num_in, steps);
  });
}

template <class T>
void add_parts(const Shape& shape, const T* input, const T* output_gradient, T* gradient, int64_t begin, int64_t end) {
  // The size of a block of images that stays in the cache while all parts use it.
  constexpr int64_t kBlockBytes = 512 * 1024;
  const int64_t in_size = shape.height * shape.width * shape.in_channels;
  const int64_t out_size =
      size_after_stride(shape.height, shape.stride) * size_after_stride(shape.width, shape.stride) * shape.out_channels;
  const int64_t block = std::max<int64_t>(kBlockBytes / ((in_size + out_size) * static_cast<int64_t>(sizeof(T))), 1);
  for (int64_t image = 0; image < shape.num_images; image += block) {
    const int64_t count = std::min(block, shape.num_images - image);
    for (int64_t part = begin; part < end; ++part)
      add_part(shape, input + image * in_size, output_gradient + image * out_size, count, part, gradient);
  }
}

// Highway cannot export templates.
void FloatParts(const Shape& shape, const float* input, const float* output_gradient, float* gradient, int64_t begin, int64_t end) {
  add_parts(shape, input, output_gradient, gradient, begin, end);
}
void DoubleParts(const Shape& shape, const double* input, const double* output_gradient, double* gradient, int64_t begin, int64_t end) {
  add_parts(shape, input, output_gradient, gradient, begin, end);
}

}  // namespace trainer::nn::convolution::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::nn::convolution {

HWY_EXPORT(FloatParts);
HWY_EXPORT(DoubleParts);

int64_t num_gradient_parts(const Shape& shape) { return 9 * parts_of_position(shape); }

template <>
void add_strided_weight_gradient(const Shape& shape, const float* input, const float* output_gradient, float* gradient, int64_t begin,
                                 int64_t end) {
  HWY_DYNAMIC_DISPATCH(FloatParts)(shape, input, output_gradient, gradient, begin, end);
}
template <>
void add_strided_weight_gradient(const Shape& shape, const double* input, const double* output_gradient, double* gradient, int64_t begin,
                                 int64_t end) {
  HWY_DYNAMIC_DISPATCH(DoubleParts)(shape, input, output_gradient, gradient, begin, end);
}

}  // namespace trainer::nn::convolution
#endif
