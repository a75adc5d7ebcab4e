#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/avx2.h"
#include "data/operations/operations.h"

namespace trainer::data {
namespace {

// Like _get_gaussian_kernel1d() in torchvision/transforms/_functional_tensor.py.
void compute_weights(int size, double sigma, std::vector<float>& weights) {
  weights.resize(static_cast<size_t>(size));
  double sum = 0;
  const auto density = [&](int i) { return std::exp(-0.5 * std::pow((i - size / 2) / sigma, 2)); };
  for (int i = 0; i < size; ++i) sum += density(i);
  for (int i = 0; i < size; ++i) weights[static_cast<size_t>(i)] = static_cast<float>(density(i) / sum);
}

// The stored row or column that `index` maps to when reflected at the edges, which are not repeated.
int reflected(int index, int size) {
  if (index < 0) return -index;
  return index < size ? index : 2 * (size - 1) - index;
}

// Writes a row with `radius` more columns on each side.
void pad_row(const PixelArray& pixels, int y, int radius, float* padded) {
  const int channels = pixels.channels;
  const uint8_t* row = pixels.data + static_cast<ptrdiff_t>(y) * pixels.width * channels;
  const auto copy_outside = [&](int begin, int end) {
    for (int x = begin; x < end; ++x) {
      for (int c = 0; c < channels; ++c) padded[(x + radius) * channels + c] = row[reflected(x, pixels.width) * channels + c];
    }
  };
  copy_outside(-radius, 0);
  std::copy_n(row, pixels.width * channels, padded + radius * channels);
  copy_outside(pixels.width, pixels.width + radius);
}

// Computes out[i] = sum over k of weights[k] * in[i + k * step].
TRAINER_FOR_AVX2_TOO void filter_row(const float* in, ptrdiff_t step, const float* weights, int num_weights, ptrdiff_t count, float* out) {
  std::fill_n(out, count, 0.0F);
  for (int k = 0; k < num_weights; ++k) {
    const float weight = weights[k];
    const float* from = in + k * step;
    for (ptrdiff_t i = 0; i < count; ++i) out[i] += weight * from[i];
  }
}

TRAINER_FOR_AVX2_TOO void add_weighted(const float* row, float weight, ptrdiff_t count, float* sum) {
  for (ptrdiff_t i = 0; i < count; ++i) sum[i] += weight * row[i];
}

TRAINER_FOR_AVX2_TOO void round_row(const float* values, ptrdiff_t count, uint8_t* out) {
  // Adding this constant leaves no bits for fractions, so that the processor rounds half to even.
  constexpr float kRoundsToInteger = 0x1.8p23F;
  for (ptrdiff_t i = 0; i < count; ++i) {
    out[i] = static_cast<uint8_t>(static_cast<int>((values[i] + kRoundsToInteger) - kRoundsToInteger));
  }
}

// One row of ImagingFilter3x3 in Pillow's src/libImaging/Filter.c with the kernel ImageFilter.SMOOTH, blended with the image like
// ImageEnhance.Sharpness. The `count` values from `row` on have neighbours at distance `step` on both sides.
TRAINER_FOR_AVX2_TOO void sharpen_row(const uint8_t* __restrict row, ptrdiff_t row_bytes, ptrdiff_t step, ptrdiff_t count, float factor,
                                      uint8_t* __restrict out) {
  constexpr float kEdge = 1.0F / 13;
  constexpr float kMiddle = 5.0F / 13;
  const uint8_t* above = row - row_bytes;
  const uint8_t* below = row + row_bytes;
  for (ptrdiff_t i = 0; i < count; ++i) {
    float sum = 0.5F;
    sum += static_cast<float>(below[i - step]) * kEdge + static_cast<float>(below[i]) * kEdge + static_cast<float>(below[i + step]) * kEdge;
    sum += static_cast<float>(row[i - step]) * kEdge + static_cast<float>(row[i]) * kMiddle + static_cast<float>(row[i + step]) * kEdge;
    sum += static_cast<float>(above[i - step]) * kEdge + static_cast<float>(above[i]) * kEdge + static_cast<float>(above[i + step]) * kEdge;
    // The sum is between 0.5 and 255.5, so clipping is not needed.
    out[i] = blend(static_cast<int>(sum), row[i], factor);
  }
}

}  // namespace

void gaussian_blur(const PixelArray& pixels, const BlurShape& shape, BlurMemory& memory, uint8_t* out) {
  const ptrdiff_t row_values = static_cast<ptrdiff_t>(pixels.width) * pixels.channels;
  memory.padded.resize(static_cast<size_t>(row_values + (shape.width - 1) * pixels.channels));
  // One more row than the image has, for the sums along y.
  memory.blurred_rows.resize(pixels.num_bytes() + static_cast<size_t>(row_values));
  float* rows = memory.blurred_rows.data();
  compute_weights(shape.width, shape.sigma, memory.weights);
  for (int y = 0; y < pixels.height; ++y) {
    pad_row(pixels, y, shape.width / 2, memory.padded.data());
    filter_row(memory.padded.data(), pixels.channels, memory.weights.data(), shape.width, row_values, rows + y * row_values);
  }
  compute_weights(shape.height, shape.sigma, memory.weights);
  float* sum = rows + pixels.height * row_values;
  for (int y = 0; y < pixels.height; ++y) {
    std::fill_n(sum, row_values, 0.0F);
    for (int k = 0; k < shape.height; ++k) {
      const float* row = rows + reflected(y + k - shape.height / 2, pixels.height) * row_values;
      add_weighted(row, memory.weights[static_cast<size_t>(k)], row_values, sum);
    }
    round_row(sum, row_values, out + y * row_values);
  }
}

void adjust_sharpness(const PixelArray& pixels, float factor, uint8_t* out) {
  std::memcpy(out, pixels.data, pixels.num_bytes());
  const ptrdiff_t step = pixels.channels;
  const ptrdiff_t row_bytes = pixels.width * step;
  // The pixels at the edges are not changed.
  for (int y = 1; y + 1 < pixels.height && pixels.width > 2; ++y) {
    const ptrdiff_t begin = y * row_bytes + step;
    sharpen_row(pixels.data + begin, row_bytes, step, row_bytes - 2 * step, factor, out + begin);
  }
}

}  // namespace trainer::data
