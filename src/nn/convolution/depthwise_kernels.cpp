#include "nn/convolution/depthwise_kernels.h"

#include <algorithm>
#include <type_traits>

// Compiled once for each instruction set that Highway supports; the best one is selected at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/convolution/depthwise_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nn/channels-inl.h"

#ifndef TRAINER_DEPTHWISE_RANGES
#define TRAINER_DEPTHWISE_RANGES
namespace trainer::nn::convolution {

// The rows or columns of the kernel whose input, which begins at `first`, is inside the image.
inline Range inner_taps(const DepthwiseShape& shape, int64_t first, int64_t size) {
  return {std::max<int64_t>(0, -first), std::min(shape.kernel, size - first)};
}
// For a row of the output.
inline Range row_taps(const DepthwiseShape& shape, int64_t y) { return inner_taps(shape, y * shape.stride - shape.padding, shape.height); }
// For a column of the output.
inline Range column_taps(const DepthwiseShape& shape, int64_t x) {
  return inner_taps(shape, x * shape.stride - shape.column_padding, shape.width);
}

// The output's columns for which all columns of the kernel are inside the image.
inline Range inner_columns(const DepthwiseShape& shape) {
  const int64_t begin = std::min((shape.column_padding + shape.stride - 1) / shape.stride, shape.out_width);
  const int64_t room = shape.width - shape.kernel + shape.column_padding;
  return {begin, std::clamp(room < 0 ? 0 : room / shape.stride + 1, begin, shape.out_width)};
}

}  // namespace trainer::nn::convolution
#endif

HWY_BEFORE_NAMESPACE();
namespace trainer::nn::convolution::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using nn::HWY_NAMESPACE::for_each_vector;
using nn::HWY_NAMESPACE::load;
using nn::HWY_NAMESPACE::store;

// Whether loops load a value once for several results. Others are used less often, and these loops are long.
template <int64_t kKernel, class S>
constexpr bool kIsFast = kKernel < 7 && !std::is_same_v<S, double>;

// Computes the values of each channel in kRows rows and kColumns columns of the output, from row y and column x on. A single row may use
// only the rows `rows` of the kernel, and a single column only the columns `columns`; others use all of them.
template <int64_t kKernel, int64_t kStride, int64_t kRows, int64_t kColumns, class S>
HWY_INLINE void output_tile(const DepthwiseShape& shape, const S* input, const Computed<S>* weight, S* output, int64_t y, int64_t x,
                            Range rows, Range columns) {
  constexpr int64_t kInputs = (kColumns - 1) * kStride + kKernel;
  const int64_t first = ((y * kStride - shape.padding) * shape.width + x * kStride - shape.column_padding) * shape.channels;
  const int64_t end = kRows == 1 ? rows.end : (kRows - 1) * kStride + kKernel;
  for_each_vector<Computed<S>>(shape.channels, [&](auto tag, int64_t c) {
    using V = hn::Vec<decltype(tag)>;
    V sums[kRows][kColumns];
    for (auto& row : sums) {
      for (auto& sum : row) sum = hn::Zero(tag);
    }
    for (int64_t row = kRows == 1 ? rows.begin : 0; row < end; ++row) {
      const S* const from = input + first + row * shape.width * shape.channels + c;
      if constexpr (kColumns == 1) {
        for (int64_t tap = columns.begin; tap < columns.end; ++tap) {
          const auto factor = hn::LoadU(tag, weight + (row * kKernel + tap) * shape.channels + c);
          sums[0][0] = hn::MulAdd(load(tag, from + tap * shape.channels), factor, sums[0][0]);
        }
      } else {
        V inputs[kInputs];
        for (int64_t i = 0; i < kInputs; ++i) inputs[i] = load(tag, from + i * shape.channels);
        for (int64_t r = 0; r < kRows; ++r) {
          const int64_t row_of_kernel = row - r * kStride;
          if (kRows > 1 && (row_of_kernel < 0 || row_of_kernel >= kKernel)) continue;
          for (int64_t tap = 0; tap < kKernel; ++tap) {
            const auto factor = hn::LoadU(tag, weight + (row_of_kernel * kKernel + tap) * shape.channels + c);
            for (int64_t i = 0; i < kColumns; ++i) sums[r][i] = hn::MulAdd(inputs[i * kStride + tap], factor, sums[r][i]);
          }
        }
      }
    }
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < kColumns; ++i) store(sums[r][i], tag, output + ((y + r) * shape.out_width + x + i) * shape.channels + c);
    }
  });
}

template <int64_t kKernel, int64_t kStride, class S>
void output_rows(const DepthwiseShape& shape, const S* input, const Computed<S>* weight, S* output, int64_t begin, int64_t end) {
  constexpr int64_t kColumns = 4;
  constexpr Range kAll = {0, kKernel};
  const auto inner = inner_columns(shape);
  const auto is_inner = [&](int64_t y) {
    const auto rows = row_taps(shape, y);
    return rows.begin == 0 && rows.end == kKernel;
  };
  for (int64_t y = begin; y < end;) {
    const int64_t count = kIsFast<kKernel, S> && y + 1 < end && is_inner(y) && is_inner(y + 1) ? 2 : 1;
    const auto rows = row_taps(shape, y);
    const auto one = [&](int64_t x) {
      for (int64_t i = 0; i < count; ++i) {
        output_tile<kKernel, kStride, 1, 1>(shape, input, weight, output, y + i, x, count == 1 ? rows : kAll, column_taps(shape, x));
      }
    };
    for (int64_t x = 0; x < inner.begin; ++x) one(x);
    for (int64_t x = inner.begin; x < inner.end; x += kColumns) {
      if (inner.end - inner.begin < kColumns) {
        one(x);
        x -= kColumns - 1;
        continue;
      }
      // The last columns may be computed twice.
      x = std::min(x, inner.end - kColumns);
      if constexpr (kIsFast<kKernel, S>) {
        if (count == 2) {
          output_tile<kKernel, kStride, 2, kColumns>(shape, input, weight, output, y, x, kAll, kAll);
          continue;
        }
      }
      output_tile<kKernel, kStride, 1, kColumns>(shape, input, weight, output, y, x, rows, kAll);
    }
    for (int64_t x = inner.end; x < shape.out_width; ++x) one(x);
    y += count;
  }
}

// The rows or columns of the kernel that the input's row or column `last`, counted with the padding, meets in an output of `out_size`:
// every stride-th from `begin`.
template <int64_t kKernel, int64_t kStride>
HWY_INLINE Range taps_of_input(int64_t last, int64_t out_size) {
  const int64_t least = std::max<int64_t>(0, last - (out_size - 1) * kStride);
  return {least + (last - least) % kStride, std::min(kKernel, last + 1)};
}

template <int64_t kKernel, int64_t kStride, class S>
void input_gradient_rows(const DepthwiseShape& shape, const S* output_gradient, const Computed<S>* weight, S* gradient, int64_t begin,
                         int64_t end) {
  if constexpr (kStride == 1) {
    // A convolution of the output's gradient with the turned kernel.
    const DepthwiseShape turned{.height = shape.out_height,
                                .width = shape.out_width,
                                .channels = shape.channels,
                                .kernel = kKernel,
                                .stride = 1,
                                .padding = kKernel - 1 - shape.padding,
                                .column_padding = kKernel - 1 - shape.column_padding,
                                .out_height = shape.height,
                                .out_width = shape.width};
    return output_rows<kKernel, 1>(turned, output_gradient, weight, gradient, begin, end);
  }
  const int64_t out_width = shape.out_width;
  for (int64_t y = begin; y < end; ++y) {
    const auto rows = taps_of_input<kKernel, kStride>(y + shape.padding, shape.out_height);
    for (int64_t x = 0; x < shape.width; ++x) {
      const auto columns = taps_of_input<kKernel, kStride>(x + shape.column_padding, out_width);
      for_each_vector<Computed<S>>(shape.channels, [&](auto tag, int64_t c) {
        auto sum = hn::Zero(tag);
        for (int64_t row = rows.begin; row < rows.end; row += kStride) {
          const int64_t line = (y + shape.padding - row) / kStride * out_width;
          for (int64_t column = columns.begin; column < columns.end; column += kStride) {
            const int64_t from = (line + (x + shape.column_padding - column) / kStride) * shape.channels + c;
            sum =
                hn::MulAdd(load(tag, output_gradient + from), hn::LoadU(tag, weight + (row * kKernel + column) * shape.channels + c), sum);
          }
        }
        store(sum, tag, gradient + (y * shape.width + x) * shape.channels + c);
      });
    }
  }
}

// Adds the products of `count` output columns from x on to the sums of kRows rows of the kernel from `row` on.
template <int64_t kKernel, int64_t kStride, int64_t kRows, class D, class S, class T = hn::TFromD<D>>
HWY_INLINE void add_columns(D tag, const DepthwiseShape& shape, const S* input, const S* output_gradient, T* sums, int64_t count) {
  hn::Vec<D> taps[kRows * kKernel];
  for (int64_t tap = 0; tap < kRows * kKernel; ++tap) taps[tap] = hn::LoadU(tag, sums + tap * shape.channels);
  // Neighbouring columns share most of their inputs.
  constexpr int64_t kColumns = 4;
  constexpr int64_t kInputs = (kColumns - 1) * kStride + kKernel;
  for (; kIsFast<kKernel, S> && count >= kColumns;
       count -= kColumns, input += kColumns * kStride * shape.channels, output_gradient += kColumns * shape.channels) {
    hn::Vec<D> given[kColumns];
    for (int64_t i = 0; i < kColumns; ++i) given[i] = load(tag, output_gradient + i * shape.channels);
    for (int64_t row = 0; row < kRows; ++row) {
      hn::Vec<D> inputs[kInputs];
      for (int64_t i = 0; i < kInputs; ++i) inputs[i] = load(tag, input + (row * shape.width + i) * shape.channels);
      for (int64_t i = 0; i < kColumns; ++i) {
        for (int64_t tap = 0; tap < kKernel; ++tap) {
          auto& sum = taps[row * kKernel + tap];
          sum = hn::MulAdd(given[i], inputs[i * kStride + tap], sum);
        }
      }
    }
  }
  for (; count > 0; --count, input += kStride * shape.channels, output_gradient += shape.channels) {
    const auto given = load(tag, output_gradient);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t tap = 0; tap < kKernel; ++tap) {
        auto& sum = taps[row * kKernel + tap];
        sum = hn::MulAdd(given, load(tag, input + (row * shape.width + tap) * shape.channels), sum);
      }
    }
  }
  for (int64_t tap = 0; tap < kRows * kKernel; ++tap) hn::StoreU(taps[tap], tag, sums + tap * shape.channels);
}

template <int64_t kKernel, int64_t kStride, class S>
void weight_gradient_rows(const DepthwiseShape& shape, const S* input, const S* output_gradient, Computed<S>* workspace, double* gradient,
                          int64_t begin, int64_t end) {
  using T = Computed<S>;
  constexpr int64_t kSums = kKernel * kKernel;
  // So many columns that their values are not much more than a page of memory.
  const int64_t group = std::max<int64_t>(4, 1024 / shape.channels);
  const auto inner = inner_columns(shape);
  for (int64_t y = begin; y < end; ++y) {
    std::fill_n(workspace, kSums * shape.channels, T(0));
    const auto rows = row_taps(shape, y);
    const S* const given = output_gradient + y * shape.out_width * shape.channels;
    const int64_t first = ((y * kStride - shape.padding) * shape.width - shape.column_padding) * shape.channels;
    const auto add_one = [&](int64_t x) {
      const auto columns = column_taps(shape, x);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t column = columns.begin; column < columns.end; ++column) {
          const int64_t from = first + (row * shape.width + x * kStride + column) * shape.channels;
          for_each_vector<T>(shape.channels, [&](auto tag, int64_t c) {
            T* sum = workspace + (row * kKernel + column) * shape.channels + c;
            hn::StoreU(hn::MulAdd(load(tag, given + x * shape.channels + c), load(tag, input + from + c), hn::LoadU(tag, sum)), tag, sum);
          });
        }
      }
    };
    for (int64_t x = 0; x < inner.begin; ++x) add_one(x);
    for (int64_t x = inner.begin; x < inner.end; x += group) {
      const int64_t count = std::min(group, inner.end - x);
      for_each_vector<T>(shape.channels, [&](auto tag, int64_t c) {
        const S* const dy = given + x * shape.channels + c;
        const auto add = [&](auto num_rows, int64_t row) {
          constexpr int64_t kRows = decltype(num_rows)::value;
          add_columns<kKernel, kStride, kRows>(tag, shape, input + first + (row * shape.width + x * kStride) * shape.channels + c, dy,
                                               workspace + row * kKernel * shape.channels + c, count);
        };
        // The sums of larger kernels do not fit into the registers.
        if (kKernel == 3 && rows.end - rows.begin == kKernel) return add(std::integral_constant<int64_t, 3>(), 0);
        for (int64_t row = rows.begin; row < rows.end; ++row) add(std::integral_constant<int64_t, 1>(), row);
      });
    }
    for (int64_t x = inner.end; x < shape.out_width; ++x) add_one(x);
    for (int64_t i = 0; i < kSums * shape.channels; ++i) gradient[i] += workspace[i];
  }
}

// Calls act(kernel, stride) with integral constants.
template <class Act>
void with_constants(const DepthwiseShape& shape, const Act& act) {
  const auto with_stride = [&](auto kernel) {
    if (shape.stride == 1) {
      act(kernel, std::integral_constant<int64_t, 1>());
    } else {
      act(kernel, std::integral_constant<int64_t, 2>());
    }
  };
  if (shape.kernel == 3) {
    with_stride(std::integral_constant<int64_t, 3>());
  } else if (shape.kernel == 5) {
    with_stride(std::integral_constant<int64_t, 5>());
  } else {
    with_stride(std::integral_constant<int64_t, 7>());
  }
}

template <class S>
void output(const DepthwiseShape& shape, const S* input, const Computed<S>* weight, S* output, int64_t begin, int64_t end) {
  with_constants(shape, [&](auto kernel, auto stride) { output_rows<kernel, stride>(shape, input, weight, output, begin, end); });
}

template <class S>
void input_gradient(const DepthwiseShape& shape, const S* output_gradient, const Computed<S>* weight, S* gradient, int64_t begin,
                    int64_t end) {
  with_constants(
      shape, [&](auto kernel, auto stride) { input_gradient_rows<kernel, stride>(shape, output_gradient, weight, gradient, begin, end); });
}

template <class S>
void weight_gradient(const DepthwiseShape& shape, const S* input, const S* output_gradient, Computed<S>* workspace, double* gradient,
                     int64_t begin, int64_t end) {
  with_constants(shape, [&](auto kernel, auto stride) {
    weight_gradient_rows<kernel, stride>(shape, input, output_gradient, workspace, gradient, begin, end);
  });
}

template <class S>
DepthwiseKernels<S> kernels_of() {
  return {&output<S>, &input_gradient<S>, &weight_gradient<S>};
}
// Highway cannot export templates.
DepthwiseKernels<float> FloatKernels() { return kernels_of<float>(); }
DepthwiseKernels<double> DoubleKernels() { return kernels_of<double>(); }
DepthwiseKernels<BFloat16> BFloatKernels() { return kernels_of<BFloat16>(); }

}  // namespace trainer::nn::convolution::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::nn::convolution {

HWY_EXPORT(FloatKernels);
HWY_EXPORT(DoubleKernels);
HWY_EXPORT(BFloatKernels);

template <>
DepthwiseKernels<float> depthwise_kernels() {
  return HWY_DYNAMIC_DISPATCH(FloatKernels)();
}
template <>
DepthwiseKernels<double> depthwise_kernels() {
  return HWY_DYNAMIC_DISPATCH(DoubleKernels)();
}
template <>
DepthwiseKernels<BFloat16> depthwise_kernels() {
  return HWY_DYNAMIC_DISPATCH(BFloatKernels)();
}

}  // namespace trainer::nn::convolution
#endif
