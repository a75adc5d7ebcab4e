#pragma once
// Winograd's algorithm for 3×3 convolutions with stride 1 and padding 1 (Lavin and Gray 2015, "Fast Algorithms for Convolutional Neural
// Networks"): forward, and the gradients of input and weights. Images are divided into tiles of m×m outputs, F(m×m, 3×3), which need
// (m + 2)² multiplications for each pair of channels instead of 9 m².
//
// Tensors are dense and channels_last: images [N][H][W][channels], weights [out][3][3][in]. These functions compute a part of the work on
// the calling thread; convolution.cpp distributes the parts. This file does not include LibTorch, so that only these loops are compiled
// for each instruction set.
//
// S is the type of images and their gradients: float, double or BFloat16. Weights, transformed tiles and sums have the type
// T = Computed<S>.

#include <cstdint>

#include "nn/channels.h"

namespace trainer::nn::convolution {

// Rounding errors are proportional to the largest values of a tile, not to the summands of the output itself. If all values of a tile have
// similar magnitudes, the errors of F(2×2, 3×3) are about as large as those of the direct algorithm, and those of F(4×4, 3×3) three to six
// times larger. An output whose tile has much larger values loses more precision.
enum class Tile : int64_t { k2 = 2, k4 = 4 };

struct Shape {
  int64_t num_images = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t in_channels = 0;   // a multiple of kChannels
  int64_t out_channels = 0;  // for Winograd's algorithm, a multiple of kChannels
  int64_t stride = 1;        // for Winograd's algorithm, 1
};

constexpr int64_t side(Tile tile) { return static_cast<int64_t>(tile) + 2; }
// The number of multiplications for each tile and pair of channels.
constexpr int64_t num_positions(Tile tile) { return side(tile) * side(tile); }
constexpr int64_t tiles_along(int64_t size, Tile tile) { return (size + static_cast<int64_t>(tile) - 1) / static_cast<int64_t>(tile); }
constexpr int64_t num_tiles(const Shape& shape, Tile tile) {
  return shape.num_images * tiles_along(shape.height, tile) * tiles_along(shape.width, tile);
}

// The shape of the convolution that computes the input gradient from the output gradient.
constexpr Shape reversed(const Shape& shape) {
  return {shape.num_images, shape.height, shape.width, shape.out_channels, shape.in_channels};
}

// The distance between positions, in values, in a block of transformed tiles, [positions][tiles][channels]. It includes an additional cache
// line, without which a tile's values at all positions would compete for a few sets of the cache.
constexpr int64_t plane_size(int64_t num_tiles, int64_t num_channels) { return num_tiles * num_channels + 2 * kChannels; }

// The distance between tiles, in values, in a block of convolve(). Products read many tiles at once; if the distance were an even number of
// cache lines, tiles would compete for some sets of the cache. For fewer channels, the additional line costs more than it saves.
constexpr int64_t row_size(int64_t num_channels) {
  return num_channels >= 256 && num_channels % (4 * kChannels) == 0 ? num_channels + 2 * kChannels : num_channels;
}

// The operations on each output value before it is written; pointers may be null.
template <class S>
struct Epilogue {
  const Computed<S>* bias = nullptr;  // one per output channel
  const S* residual = nullptr;        // added to the output, which has the same size
  bool relu = false;
};

// The number of values of `workspace` that convolve() needs for blocks of `tiles_per_block` tiles.
int64_t convolve_workspace(Tile tile, const Shape& shape, int64_t tiles_per_block);

template <class S>
struct Kernels {
  using T = Computed<S>;

  // Transforms the weights for convolve(), once per call of the layer, to [positions][blocks of out][in][channels of the block]; in and out
  // are the channels of `shape`. `weight`: the layer's weight, [out][3][3][in]; if `is_reversed`, [in][3][3][out], and each kernel is
  // rotated by 180 degrees. Computes the input channels [begin, end); both limits are multiples of kChannels.
  void (*transform_weights)(const Shape& shape, const T* weight, bool is_reversed, T* transformed, int64_t begin, int64_t end);
  // Computes the output for the tiles [begin, end), at most tiles_per_block of them.
  void (*convolve)(const Shape& shape, const S* input, const T* transformed_weights, const Epilogue<S>& epilogue, S* output, int64_t begin,
                   int64_t end, T* workspace);
  // The weight gradient is computed for blocks of `count` tiles, beginning with the tile `first`. This function transforms the tiles
  // [begin, end) of such a block to `inputs` and `gradients`, which have num_positions() planes each.
  void (*transform_block)(const Shape& shape, const S* input, const S* output_gradient, int64_t first, int64_t count, int64_t begin,
                          int64_t end, T* inputs, T* gradients);
  // Adds the products of a transformed block to `sums`, [positions][out][in], at the positions [begin, end).
  void (*add_weight_products)(const Shape& shape, const T* inputs, const T* gradients, int64_t count, T* sums, int64_t begin, int64_t end);
  // Computes the gradient [out][3][3][in] of the output channels [begin, end) from `num_sums` sums, which are stored consecutively and
  // added in this order.
  void (*finish_weight_gradient)(const Shape& shape, const T* sums, int64_t num_sums, T* gradient, int64_t begin, int64_t end);
};

// For the instruction set of this processor.
template <class S>
Kernels<S> kernels(Tile tile);

}  // namespace trainer::nn::convolution
