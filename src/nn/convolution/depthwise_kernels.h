#pragma once
// Depthwise convolutions (each channel has a kernel of its own) and their gradients by the direct algorithm, for one image. Tensors are
// dense and channels_last: [height][width][channels], with a number of channels that is a multiple of kFewestChannels. This file does not
// include LibTorch, so that only these loops are compiled for each instruction set.
//
// S is the type of the tensors: float, double or BFloat16. Weights have the type Computed<S>.

#include <algorithm>
#include <cstdint>

#include "nn/channels.h"

namespace trainer::nn::convolution {

struct Range {
  int64_t begin, end;
};

// Rows and columns of zeros around an image.
struct Padding {
  constexpr Padding(int64_t all) : Padding(all, all, all, all) {}  // NOLINT(google-explicit-constructor)
  constexpr Padding(int64_t above, int64_t before, int64_t below, int64_t after) : top(above), left(before), bottom(below), right(after) {}
  int64_t top, left, bottom, right;
};

struct DepthwiseShape {
  int64_t height, width, channels;
  int64_t kernel;                 // height and width: 3, 5 or 7
  int64_t stride;                 // 1 or 2
  int64_t padding;                // rows of zeros above the image; less than `kernel`
  int64_t column_padding;         // columns of zeros at the left; less than `kernel`
  int64_t out_height, out_width;  // those for which there is enough padding below and at the right

  // Divides the rows of the input among those of the output, for gradients of the input that are computed with blocks of rows of the
  // output.
  Range share_of_input(const Range& output_rows) const {
    const auto first = [&](int64_t row) { return row == out_height ? height : std::min(row * stride, height); };
    return {first(output_rows.begin), first(output_rows.end)};
  }
};

// The division of the output's rows of a batch among threads, in blocks of so few rows that their values stay in the cache.
struct DepthwiseBlocks {
  int64_t num_images, out_height, rows_at_once, num_parts;

  DepthwiseBlocks(const DepthwiseShape& shape, int64_t images, int64_t rows, int64_t num_threads)
      : num_images(images),
        out_height(shape.out_height),
        rows_at_once(rows),
        num_parts(std::clamp<int64_t>(images * out_height / rows, 1, num_threads)) {}

  // Calls act(image, rows) for the blocks of a part, in order.
  template <class Act>
  void for_each(int64_t part, const Act& act) const {
    const int64_t num_rows = num_images * out_height;
    const int64_t end = num_rows * (part + 1) / num_parts;
    for (int64_t row = num_rows * part / num_parts; row < end;) {
      const int64_t first = row % out_height;
      const int64_t count = std::min({rows_at_once, out_height - first, end - row});
      act(row / out_height, Range{first, first + count});
      row += count;
    }
  }
};

template <class S>
struct DepthwiseKernels {
  using T = Computed<S>;

  // Computes the rows [begin, end) of the output. `weight`: [kernel][kernel][channels].
  void (*output)(const DepthwiseShape& shape, const S* input, const T* weight, S* output, int64_t begin, int64_t end);
  // Computes the rows [begin, end) of the input's gradient. `weight`: [kernel][kernel][channels], with stride 1 turned by 180 degrees.
  void (*input_gradient)(const DepthwiseShape& shape, const S* output_gradient, const T* weight, S* gradient, int64_t begin, int64_t end);
  // Adds the products of the output's rows [begin, end) to `gradient`, [kernel][kernel][channels]. Sums of a row are added in Computed<S>,
  // in `workspace`, which has the size of `gradient`.
  void (*weight_gradient)(const DepthwiseShape& shape, const S* input, const S* output_gradient, T* workspace, double* gradient,
                          int64_t begin, int64_t end);
};

// For the instruction set of this processor.
template <class S>
DepthwiseKernels<S> depthwise_kernels();

}  // namespace trainer::nn::convolution
