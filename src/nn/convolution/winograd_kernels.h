#pragma once
// Winograd's algorithm for 3×3 convolutions with stride 1 and padding 1 (Lavin and Gray 2015, "Fast Algorithms for Convolutional Neural
// Networks"): forward, and the gradients of input and weights. Images are cut into tiles of m×m outputs, F(m×m, 3×3), which take
// (m + 2)² multiplications for each pair of channels instead of 9 m².
//
// Tensors are dense and channels_last: images [N][H][W][channels], weights [out][3][3][in]. These functions compute a part of the work on
// the calling thread; convolution.cpp distributes the parts. Without LibTorch, so that the compiler sees only loops.
//
// S: the type of images and their gradients, float, double or BFloat16. Weights, transformed tiles and sums have the type that is computed
// with, T = Computed<S>.

#include <cstdint>

#include "nn/channels.h"

namespace trainer::nn::convolution {

// Rounding is relative to the largest values of a tile, not to those that an output is a sum of. Where these are alike, F(2×2, 3×3) rounds
// as the direct algorithm does, and F(4×4, 3×3) three to six times more; an output near much larger values loses more.
enum class Tile : int64_t { k2 = 2, k4 = 4 };

struct Shape {
  int64_t num_images = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t in_channels = 0;   // a multiple of kChannels
  int64_t out_channels = 0;  // a multiple of kChannels
};

constexpr int64_t side(Tile tile) { return static_cast<int64_t>(tile) + 2; }
// Multiplications for each tile and pair of channels.
constexpr int64_t num_positions(Tile tile) { return side(tile) * side(tile); }
constexpr int64_t tiles_along(int64_t size, Tile tile) { return (size + static_cast<int64_t>(tile) - 1) / static_cast<int64_t>(tile); }
constexpr int64_t num_tiles(const Shape& shape, Tile tile) {
  return shape.num_images * tiles_along(shape.height, tile) * tiles_along(shape.width, tile);
}

// The shape of the convolution that computes the gradient of the input from that of the output.
constexpr Shape reversed(const Shape& shape) {
  return {shape.num_images, shape.height, shape.width, shape.out_channels, shape.in_channels};
}

// Values from one position to the next in a block of transformed tiles, [positions][tiles][channels]. Without the additional line of the
// cache, a tile's values at all positions would compete for few of the cache's sets.
constexpr int64_t plane_size(int64_t num_tiles, int64_t num_channels) { return num_tiles * num_channels + 2 * kChannels; }

// Values from one tile to the next in a block of convolve(). Products read many tiles at once; with an even number of the cache's lines
// from one to the next, these would compete for some of its sets. For fewer channels the additional line costs more than it gains.
constexpr int64_t row_size(int64_t num_channels) {
  return num_channels >= 256 && num_channels % (4 * kChannels) == 0 ? num_channels + 2 * kChannels : num_channels;
}

// Weights for convolve(): [positions][in][out], of `shape`; they are transformed once for each call of the layer.
// `weight`: of the layer, [out][3][3][in]; if `is_reversed`, [in][3][3][out] of this shape, which is turned by 180 degrees.
// Computes the input channels [begin, end), multiples of kChannels.
template <class T>
void transform_weights(Tile tile, const Shape& shape, const T* weight, bool is_reversed, T* transformed, int64_t begin, int64_t end);

// Values of `workspace` that convolve() needs for blocks of so many tiles.
int64_t convolve_workspace(Tile tile, const Shape& shape, int64_t tiles_per_block);
// What is done with each value of the output before it is written; pointers may be null.
template <class S>
struct Epilogue {
  const Computed<S>* bias = nullptr;  // of each output channel
  const S* residual = nullptr;        // is added; of the output's size
  bool relu = false;
};

// The output for the tiles [begin, end), at most tiles_per_block of them.
template <class S>
void convolve(Tile tile, const Shape& shape, const S* input, const Computed<S>* transformed_weights, const Epilogue<S>& epilogue, S* output,
              int64_t begin, int64_t end, Computed<S>* workspace);

// The gradient of the weights is computed for blocks of `count` tiles, beginning with the tile `first`. Transforms the tiles [begin, end)
// of such a block: `inputs` and `gradients`, each of num_positions() planes.
template <class S>
void transform_block(Tile tile, const Shape& shape, const S* input, const S* output_gradient, int64_t first, int64_t count, int64_t begin,
                     int64_t end, Computed<S>* inputs, Computed<S>* gradients);
// Adds the products of a transformed block to `sums`, [positions][out][in], at the positions [begin, end).
template <class T>
void add_weight_products(Tile tile, const Shape& shape, const T* inputs, const T* gradients, int64_t count, T* sums, int64_t begin,
                         int64_t end);
// The gradient [out][3][3][in] of the output channels [begin, end) from `num_sums` sums, which lie behind each other and are added in this
// order.
template <class T>
void finish_weight_gradient(Tile tile, const Shape& shape, const T* sums, int64_t num_sums, T* gradient, int64_t begin, int64_t end);

}  // namespace trainer::nn::convolution
