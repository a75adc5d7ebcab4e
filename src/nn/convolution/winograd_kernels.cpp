#include "nn/convolution/winograd_kernels.h"

#include <algorithm>

// Compiled once for each instruction set that Highway supports; the best one is selected at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/convolution/winograd_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nn/convolution/products-inl.h"
#include "nn/convolution/transforms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::nn::convolution::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using nn::HWY_NAMESPACE::kNarrowLanes;
using nn::HWY_NAMESPACE::load;
using nn::HWY_NAMESPACE::NarrowTag;
using nn::HWY_NAMESPACE::store;

// The position of a tile.
struct Place {
  int64_t image, row, column;  // row and column: of its first output
};

template <int kTile>
HWY_INLINE Place place_of(const Shape& shape, int64_t tile) {
  const int64_t across = tiles_along(shape.width, Tile{kTile});
  const int64_t in_image = across * tiles_along(shape.height, Tile{kTile});
  const int64_t rest = tile % in_image;
  return {tile / in_image, rest / across * kTile, rest % across * kTile};
}

// Calls act(tile, its place) for the tiles [begin, end).
template <int kTile, class Act>
HWY_INLINE void for_each_tile(const Shape& shape, int64_t begin, int64_t end, const Act& act) {
  auto place = place_of<kTile>(shape, begin);
  for (int64_t tile = begin; tile < end; ++tile) {
    act(tile, place);
    place.column += kTile;
    if (place.column < shape.width) continue;
    place.column = 0;
    place.row += kTile;
    if (place.row < shape.height) continue;
    place.row = 0;
    ++place.image;
  }
}

// Loads kSize × kSize pixels of an image, zero outside it, for the vector of channels that begins with `channel`.
template <int kSize, class D, class S>
HWY_INLINE void load_pixels(D tag, const Shape& shape, int64_t num_channels, const S* images, int64_t image, int64_t first_row,
                            int64_t first_column, int64_t channel, hn::Vec<D>* pixels) {
  const S* begin = images + image * shape.height * shape.width * num_channels + channel;
  const bool is_all_inside =
      first_row >= 0 && first_row + kSize <= shape.height && first_column >= 0 && first_column + kSize <= shape.width;
  if (is_all_inside) {
    begin += (first_row * shape.width + first_column) * num_channels;
    TRAINER_UNROLL for (int i = 0; i < kSize; ++i, begin += shape.width * num_channels) {
      TRAINER_UNROLL for (int j = 0; j < kSize; ++j) pixels[i * kSize + j] = load(tag, begin + j * num_channels);
    }
    return;
  }
  // Most tiles of small images are at an edge. The code selects the address instead of branching, because branches are often mispredicted
  // here.
  alignas(64) static constexpr S kZeros[2 * kChannels] = {};
  TRAINER_UNROLL for (int i = 0; i < kSize; ++i) {
    const int64_t row = first_row + i;
    const bool has_row = row >= 0 && row < shape.height;
    TRAINER_UNROLL for (int j = 0; j < kSize; ++j) {
      const int64_t column = first_column + j;
      const bool is_inside = has_row & (column >= 0) & (column < shape.width);
      const int64_t offset = (row * shape.width + column) * num_channels;
      pixels[i * kSize + j] = load(tag, is_inside ? begin + offset : kZeros);
    }
  }
}

// Computes Bᵀ d B of a tile for all channels; position q is written to values[q * plane + channel].
template <int kTile, class S, class T = Computed<S>>
HWY_INLINE void transform_input(const Shape& shape, int64_t num_channels, const S* input, const Place& place, T* values, int64_t plane) {
  constexpr int kSide = kTile + 2;
  for_each_vector<T, kChannels>(num_channels, [&](auto tag, int64_t channel) {
    using V = hn::Vec<decltype(tag)>;
    V d[kSide * kSide];
    V u[kSide * kSide];
    load_pixels<kSide>(tag, shape, num_channels, input, place.image, place.row - 1, place.column - 1, channel, d);
    TRAINER_UNROLL for (int j = 0; j < kSide; ++j) Algorithm<kTile>::input(d + j, kSide, u + j, kSide);
    TRAINER_UNROLL for (int i = 0; i < kSide; ++i) Algorithm<kTile>::input(u + i * kSide, 1, d + i * kSide, 1);
    TRAINER_UNROLL for (int q = 0; q < kSide * kSide; ++q) hn::StoreU(d[q], tag, values + q * plane + channel);
  });
}

// Computes A y Aᵀ of a tile for all channels.
template <int kTile, class S, class T = Computed<S>>
HWY_INLINE void transform_gradient(const Shape& shape, int64_t num_channels, const S* gradient, const Place& place, T* values,
                                   int64_t plane) {
  constexpr int kSide = kTile + 2;
  for_each_vector<T, kChannels>(num_channels, [&](auto tag, int64_t channel) {
    using V = hn::Vec<decltype(tag)>;
    V y[kTile * kTile];
    V u[kSide * kTile];
    V d[kSide * kSide];
    load_pixels<kTile>(tag, shape, num_channels, gradient, place.image, place.row, place.column, channel, y);
    TRAINER_UNROLL for (int j = 0; j < kTile; ++j) Algorithm<kTile>::gradient(y + j, kTile, u + j, kTile);
    TRAINER_UNROLL for (int i = 0; i < kSide; ++i) Algorithm<kTile>::gradient(u + i * kTile, 1, d + i * kSide, 1);
    TRAINER_UNROLL for (int q = 0; q < kSide * kSide; ++q) hn::StoreU(d[q], tag, values + q * plane + channel);
  });
}

// Computes Aᵀ m A of a tile and the epilogue for the vector of output channels that begins with `channel`; position q is at sums[q *
// plane].
template <int kTile, class D, class S, class T = Computed<S>>
HWY_INLINE void transform_output(D tag, const Shape& shape, const T* sums, int64_t plane, const Place& place, int64_t channel,
                                 const Epilogue<S>& epilogue, S* output) {
  constexpr int kSide = kTile + 2;
  using V = hn::Vec<D>;
  V m[kSide * kSide];
  V u[kTile * kSide];
  V y[kTile * kTile];
  TRAINER_UNROLL for (int q = 0; q < kSide * kSide; ++q) m[q] = hn::LoadU(tag, sums + q * plane);
  TRAINER_UNROLL for (int j = 0; j < kSide; ++j) Algorithm<kTile>::output(m + j, kSide, u + j, kSide);
  TRAINER_UNROLL for (int i = 0; i < kTile; ++i) Algorithm<kTile>::output(u + i * kSide, 1, y + i * kTile, 1);
  const V bias = epilogue.bias != nullptr ? hn::LoadU(tag, epilogue.bias + channel) : hn::Zero(tag);
  const int64_t image = place.image * shape.height * shape.width;
  TRAINER_UNROLL for (int i = 0; i < kTile; ++i) {
    if (place.row + i >= shape.height) break;
    TRAINER_UNROLL for (int j = 0; j < kTile; ++j) {
      if (place.column + j >= shape.width) break;
      const int64_t offset = (image + (place.row + i) * shape.width + place.column + j) * shape.out_channels + channel;
      V value = hn::Add(y[i * kTile + j], bias);
      if (epilogue.residual != nullptr) value = hn::Add(value, load(tag, epilogue.residual + offset));
      // Max is not used, because it returns 0 for NaN on some processors.
      if (epilogue.relu) value = hn::IfThenZeroElse(hn::Lt(value, hn::Zero(tag)), value);
      store(value, tag, output + offset);
    }
  }
}

// Computes the products at one position for a block of tiles and kVectors vectors of output channels. A separate function, because inside
// convolve_tiles() the compiler would keep the addresses of the innermost loop in memory.
template <int kVectors, class D, class T = hn::TFromD<D>>
HWY_NOINLINE void multiply_tiles(D tag, int64_t num_tiles, const T* inputs, int64_t num_in, int64_t row, const T* weights, T* sums) {
  constexpr int64_t kWidth = kVectors * static_cast<int64_t>(hn::MaxLanes(D()));
  multiply_rows<kVectors, /*kAdds=*/false>(tag, num_tiles, inputs, row, weights, sums, kWidth, Line{num_in, 1, kWidth});
}

template <int kTile, class S, class T = Computed<S>>
void convolve_tiles(const Shape& shape, const S* input, const T* weights, const Epilogue<S>& epilogue, S* output, int64_t begin,
                    int64_t end, T* workspace) {
  constexpr int kPositions = (kTile + 2) * (kTile + 2);
  const int64_t num_in = shape.in_channels;
  const int64_t num_out = shape.out_channels;
  const int64_t count = end - begin;
  const int64_t row = row_size(num_in);
  const int64_t plane = plane_size(count, row);
  T* sums = workspace + kPositions * plane;
  for_each_tile<kTile>(shape, begin, end, [&](int64_t tile, const Place& place) {
    transform_input<kTile>(shape, num_in, input, place, workspace + (tile - begin) * row, plane);
  });
  for_each_column_block<T>(num_out, [&](auto tag, auto num_vectors, int64_t column) {
    constexpr int kVectors = decltype(num_vectors)::value;
    constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(decltype(tag)()));
    constexpr int64_t kWidth = kVectors * kLanes;
    const int64_t sums_plane = plane_size(count, kWidth);
    for (int64_t q = 0; q < kPositions; ++q) {
      multiply_tiles<kVectors>(tag, count, workspace + q * plane, num_in, row, weights + (q * num_out + column) * num_in,
                               sums + q * sums_plane);
    }
    for_each_tile<kTile>(shape, begin, end, [&](int64_t tile, const Place& place) {
      const T* sums_of_tile = sums + (tile - begin) * kWidth;
      for (int v = 0; v < kVectors; ++v) {
        transform_output<kTile>(tag, shape, sums_of_tile + v * kLanes, sums_plane, place, column + v * kLanes, epilogue, output);
      }
    });
  });
}

// Returns the first column and the width of the block of columns that contains an output channel.
template <class T>
std::pair<int64_t, int64_t> block_of(int64_t num_columns, int64_t column) {
  for (const int64_t width : {2 * kWideLanes<T>, kWideLanes<T>}) {
    if (column < num_columns / width * width) return {column / width * width, width};
  }
  return {column / kNarrowLanes<T> * kNarrowLanes<T>, kNarrowLanes<T>};
}

// Copies the weights of kChannels input channels and kNarrowLanes output channels, which begin at `weight`, to [9][in][out]. Without the
// copy, values of different output channels would compete for a few sets of the cache.
template <class T>
void turn_weights(const T* weight, int64_t num_in, T* turned) {
  for (int64_t out = 0; out < kNarrowLanes<T>; ++out) {
    for (int64_t p = 0; p < 9; ++p, weight += num_in) {
      for (int64_t in = 0; in < kChannels; ++in) turned[(p * kChannels + in) * kNarrowLanes<T> + out] = weight[in];
    }
  }
}

// Computes G g Gᵀ. The weights of a block of output channels are stored together: [positions][block][in][channels of the block].
template <int kTile, class T>
void transform_weight_channels(const Shape& shape, const T* weight, bool is_reversed, T* transformed, int64_t begin, int64_t end) {
  constexpr int kSide = kTile + 2;
  const NarrowTag<T> tag;
  using V = hn::Vec<NarrowTag<T>>;
  constexpr int64_t kLanes = kNarrowLanes<T>;
  const int64_t num_in = shape.in_channels;
  const int64_t num_out = shape.out_channels;
  const auto& matrix = Algorithm<kTile>::kWeights;
  const auto combine = [&](const double* factors, V a, V b, V c) {
    const auto set = [&](double value) { return hn::Set(tag, static_cast<T>(value)); };
    return hn::MulAdd(set(factors[0]), a, hn::MulAdd(set(factors[1]), b, hn::Mul(set(factors[2]), c)));
  };
  for (int64_t first = begin; first < end; first += kChannels) {
    for (int64_t out = 0; out < num_out; out += kLanes) {
      const auto [block, width] = block_of<T>(num_out, out);
      HWY_ALIGN T turned[9 * kChannels * kLanes];
      if (!is_reversed) turn_weights(weight + out * 9 * num_in + first, num_in, turned);
      for (int64_t in = first; in < first + kChannels; ++in) {
        V g[9];
        for (int p = 0; p < 9; ++p) {
          g[p] = is_reversed ? hn::LoadU(tag, weight + (in * 9 + 8 - p) * num_out + out)
                             : hn::Load(tag, turned + (p * kChannels + in - first) * kLanes);
        }
        V rows[kSide * 3];
        for (int i = 0; i < kSide; ++i) {
          for (int j = 0; j < 3; ++j) rows[i * 3 + j] = combine(matrix[i], g[j], g[3 + j], g[6 + j]);
        }
        for (int i = 0; i < kSide; ++i) {
          for (int j = 0; j < kSide; ++j) {
            const V value = combine(matrix[j], rows[i * 3], rows[i * 3 + 1], rows[i * 3 + 2]);
            hn::StoreU(value, tag, transformed + ((i * kSide + j) * num_out + block) * num_in + in * width + out - block);
          }
        }
      }
    }
  }
}

template <int kTile, class S, class T = Computed<S>>
void transform_tiles(const Shape& shape, const S* input, const S* output_gradient, int64_t first, int64_t count, int64_t begin, int64_t end,
                     T* inputs, T* gradients) {
  const int64_t num_in = shape.in_channels;
  const int64_t num_out = shape.out_channels;
  for_each_tile<kTile>(shape, begin, end, [&](int64_t tile, const Place& place) {
    const int64_t t = tile - first;
    transform_input<kTile>(shape, num_in, input, place, inputs + t * num_in, plane_size(count, num_in));
    transform_gradient<kTile>(shape, num_out, output_gradient, place, gradients + t * num_out, plane_size(count, num_out));
  });
}

template <class T>
void add_products(const Shape& shape, const T* inputs, const T* gradients, int64_t count, T* sums, int64_t begin, int64_t end) {
  const int64_t num_in = shape.in_channels;
  const int64_t num_out = shape.out_channels;
  for (int64_t q = begin; q < end; ++q) {
    for_each_column_block<T>(num_in, [&](auto tag, auto num_vectors, int64_t column) {
      multiply_rows<decltype(num_vectors)::value, /*kAdds=*/true>(
          tag, num_out, gradients + q * plane_size(count, num_out), 1, inputs + q * plane_size(count, num_in) + column,
          sums + q * num_out * num_in + column, num_in, Line{count, num_out, num_in});
    });
  }
}

// Computes Gᵀ u G.
template <int kTile, class T>
void finish_gradient(const Shape& shape, const T* sums, int64_t num_sums, T* gradient, int64_t begin, int64_t end) {
  constexpr int kSide = kTile + 2;
  const int64_t num_in = shape.in_channels;
  const int64_t plane = shape.out_channels * num_in;
  const auto& matrix = Algorithm<kTile>::kWeights;
  for (int64_t out = begin; out < end; ++out) {
    for_each_vector<T, kChannels>(num_in, [&](auto tag, int64_t in) {
      using V = hn::Vec<decltype(tag)>;
      const auto set = [&](double value) { return hn::Set(tag, static_cast<T>(value)); };
      V u[kSide * kSide];
      for (int q = 0; q < kSide * kSide; ++q) {
        const T* first = sums + q * plane + out * num_in + in;
        u[q] = hn::LoadU(tag, first);
        for (int64_t s = 1; s < num_sums; ++s) u[q] = hn::Add(u[q], hn::LoadU(tag, first + s * kSide * kSide * plane));
      }
      V rows[3 * kSide];
      for (int r = 0; r < 3; ++r) {
        for (int j = 0; j < kSide; ++j) {
          V sum = hn::Zero(tag);
          for (int i = 0; i < kSide; ++i) sum = hn::MulAdd(set(matrix[i][r]), u[i * kSide + j], sum);
          rows[r * kSide + j] = sum;
        }
      }
      for (int r = 0; r < 3; ++r) {
        for (int c = 0; c < 3; ++c) {
          V sum = hn::Zero(tag);
          for (int j = 0; j < kSide; ++j) sum = hn::MulAdd(set(matrix[j][c]), rows[r * kSide + j], sum);
          hn::StoreU(sum, tag, gradient + (out * 9 + r * 3 + c) * num_in + in);
        }
      }
    });
  }
}

template <int kTile, class S>
Kernels<S> kernels_of() {
  using T = Computed<S>;
  return {&transform_weight_channels<kTile, T>, &convolve_tiles<kTile, S>, &transform_tiles<kTile, S>, &add_products<T>,
          &finish_gradient<kTile, T>};
}
// Highway cannot export templates.
Kernels<float> FloatKernels(Tile tile) { return tile == Tile::k2 ? kernels_of<2, float>() : kernels_of<4, float>(); }
Kernels<double> DoubleKernels(Tile tile) { return tile == Tile::k2 ? kernels_of<2, double>() : kernels_of<4, double>(); }
Kernels<BFloat16> BFloatKernels(Tile tile) { return tile == Tile::k2 ? kernels_of<2, BFloat16>() : kernels_of<4, BFloat16>(); }

}  // namespace trainer::nn::convolution::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::nn::convolution {

HWY_EXPORT(FloatKernels);
HWY_EXPORT(DoubleKernels);
HWY_EXPORT(BFloatKernels);

template <>
Kernels<float> kernels(Tile tile) {
  return HWY_DYNAMIC_DISPATCH(FloatKernels)(tile);
}
template <>
Kernels<double> kernels(Tile tile) {
  return HWY_DYNAMIC_DISPATCH(DoubleKernels)(tile);
}
template <>
Kernels<BFloat16> kernels(Tile tile) {
  return HWY_DYNAMIC_DISPATCH(BFloatKernels)(tile);
}

int64_t convolve_workspace(Tile tile, const Shape& shape, int64_t tiles_per_block) {
  // Room for the sums of one block of columns; the widest block has two vectors.
  constexpr int64_t kWidest = 4 * kChannels;
  return num_positions(tile) * (plane_size(tiles_per_block, row_size(shape.in_channels)) + plane_size(tiles_per_block, kWidest));
}

}  // namespace trainer::nn::convolution
#endif
