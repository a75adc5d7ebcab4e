#include "input/resample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace trainer::input {
namespace {

// Of the weights: 8 bits are for the pixel, and 2 for sums that exceed the range of a pixel.
constexpr int kFractionBits = 32 - 8 - 2;
constexpr int32_t kHalf = 1 << (kFractionBits - 1);

uint8_t to_pixel(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255)); }

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// The taps of the outputs first to first + num_outputs - 1 when `in_size` pixels are resampled to `out_size`.
void compute_taps(int in_size, int out_size, int first, int num_outputs, std::vector<double>& unrounded, Taps& taps) {
  const double scale = static_cast<double>(in_size) / out_size;
  const double filter_scale = std::max(scale, 1.0);
  const double support = filter_scale;
  const double inverse_scale = 1.0 / filter_scale;
  taps.count = static_cast<int>(std::ceil(support)) * 2 + 1;
  const auto count = static_cast<size_t>(taps.count);
  taps.begin.resize(static_cast<size_t>(num_outputs));
  taps.num.resize(static_cast<size_t>(num_outputs));
  taps.weights.resize(static_cast<size_t>(num_outputs) * count);
  unrounded.resize(count);
  for (size_t i = 0; i < static_cast<size_t>(num_outputs); ++i) {
    const double center = (first + static_cast<int>(i) + 0.5) * scale;
    const int begin = std::max(static_cast<int>(center - support + 0.5), 0);
    const int num = std::min(static_cast<int>(center + support + 0.5), in_size) - begin;
    double sum = 0;
    for (int k = 0; k < num; ++k) {
      const double weight = triangle((k + begin - center + 0.5) * inverse_scale);
      unrounded[static_cast<size_t>(k)] = weight;
      sum += weight;
    }
    for (int k = 0; k < num; ++k) {
      const double weight = sum != 0 ? unrounded[static_cast<size_t>(k)] / sum : unrounded[static_cast<size_t>(k)];
      taps.weights[i * count + static_cast<size_t>(k)] = static_cast<int32_t>(0.5 + weight * (1 << kFractionBits));
    }
    taps.begin[i] = begin;
    taps.num[i] = num;
  }
}

// Makes the first pixel that is needed number 0. Returns how many are needed.
int drop_unused(Taps& taps, int& first) {
  first = taps.begin.front();
  for (int& begin : taps.begin) begin -= first;
  return taps.begin.back() + taps.num.back();
}

// Pixels in memory, with the distances between them in bytes.
struct Pixels {
  const uint8_t* data = nullptr;
  ptrdiff_t row = 0;
  ptrdiff_t column = 0;
  ptrdiff_t channel = 0;

  static Pixels in_order(PixelOrder order, const uint8_t* data, int channels, int height, int width) {
    if (order == PixelOrder::kInterleaved) return {data, static_cast<ptrdiff_t>(width) * channels, channels, 1};
    return {data, width, 1, static_cast<ptrdiff_t>(height) * width};
  }
  // Those from (top, left) on.
  Pixels from(int top, int left) const { return {data + top * row + left * column, row, column, channel}; }
};

// One output row of the horizontal pass, channels interleaved. kChannels 0: `channels`.
template <int kChannels>
void resample_row(const Pixels& pixels, const uint8_t* row, int channels, const Taps& taps, uint8_t* out) {
  const int num_channels = kChannels > 0 ? kChannels : channels;
  for (size_t x = 0; x < taps.begin.size(); ++x, out += num_channels) {
    const int32_t* weights = &taps.weights[x * static_cast<size_t>(taps.count)];
    const uint8_t* pixel = row + taps.begin[x] * pixels.column;
    if constexpr (kChannels > 0) {
      std::array<int32_t, static_cast<size_t>(kChannels)> sums;
      sums.fill(kHalf);
      for (int k = 0; k < taps.num[x]; ++k, pixel += pixels.column) {
        for (int c = 0; c < kChannels; ++c) sums[static_cast<size_t>(c)] += pixel[c * pixels.channel] * weights[k];
      }
      for (int c = 0; c < kChannels; ++c) out[c] = to_pixel(sums[static_cast<size_t>(c)]);
    } else {
      for (int c = 0; c < num_channels; ++c) {
        int32_t sum = kHalf;
        for (int k = 0; k < taps.num[x]; ++k) sum += pixel[k * pixels.column + c * pixels.channel] * weights[k];
        out[c] = to_pixel(sum);
      }
    }
  }
}

// Writes `num_rows` rows of the width that the taps have.
void resample_rows(const Pixels& pixels, int num_rows, int channels, const Taps& taps, uint8_t* out) {
  const auto row_bytes = static_cast<ptrdiff_t>(taps.begin.size()) * channels;
  for (int y = 0; y < num_rows; ++y) {
    const uint8_t* row = pixels.data + y * pixels.row;
    if (channels == 3) {
      resample_row<3>(pixels, row, channels, taps, out + y * row_bytes);
    } else {
      resample_row<0>(pixels, row, channels, taps, out + y * row_bytes);
    }
  }
}

#ifdef __x86_64__
#define TRAINER_FOR_AVX2_TOO [[gnu::target_clones("default", "avx2")]]
#else
#define TRAINER_FOR_AVX2_TOO
#endif

// One output row of the vertical pass: the weighted sum of `num` rows of `row_bytes` bytes, `stride` bytes apart.
TRAINER_FOR_AVX2_TOO void add_rows(const uint8_t* rows, ptrdiff_t stride, ptrdiff_t row_bytes, const int32_t* weights, int num,
                                   uint8_t* out) {
  constexpr ptrdiff_t kBlock = 64;
  for (ptrdiff_t begin = 0; begin < row_bytes; begin += kBlock) {
    const ptrdiff_t size = std::min(kBlock, row_bytes - begin);
    int32_t sums[kBlock];
    for (int32_t& sum : sums) sum = kHalf;
    for (int k = 0; k < num; ++k) {
      const uint8_t* row = rows + k * stride + begin;
      const int32_t weight = weights[k];
      if (size == kBlock) {
        for (ptrdiff_t i = 0; i < kBlock; ++i) sums[i] += row[i] * weight;
      } else {
        for (ptrdiff_t i = 0; i < size; ++i) sums[i] += row[i] * weight;
      }
    }
    for (ptrdiff_t i = 0; i < size; ++i) out[begin + i] = to_pixel(sums[i]);
  }
}

void resample_columns(const uint8_t* rows, ptrdiff_t stride, ptrdiff_t row_bytes, const Taps& taps, uint8_t* out) {
  for (size_t y = 0; y < taps.begin.size(); ++y) {
    add_rows(rows + taps.begin[y] * stride, stride, row_bytes, &taps.weights[y * static_cast<size_t>(taps.count)], taps.num[y],
             out + static_cast<ptrdiff_t>(y) * row_bytes);
  }
}

// Pillow's choice of the first pass, which decides about roundings (Pillow 13: github.com/python-pillow/Pillow/pull/9549).
bool begins_with_columns(const ImageView& source, int height, int width) {
  const int less_height = source.window_height - height;
  return less_height > 0 && less_height > 2 * (source.window_width - width);
}

}  // namespace

void resample(const ImageView& source, int height, int width, const Box& part, ResampleMemory& memory, uint8_t* out) {
  if (part.height == 0 || part.width == 0) return;
  auto& horizontal = memory.horizontal;
  auto& vertical = memory.vertical;
  compute_taps(source.window_width, width, part.left, part.width, memory.unrounded, horizontal);
  compute_taps(source.window_height, height, part.top, part.height, memory.unrounded, vertical);
  int top = 0;
  int left = 0;
  const int num_rows = drop_unused(vertical, top);
  const int num_columns = drop_unused(horizontal, left);
  const int channels = source.channels;
  const auto pixels =
      Pixels::in_order(source.order, source.pixels, channels, source.height, source.width).from(source.top + top, source.left + left);
  const bool columns_first = begins_with_columns(source, height, width);
  const auto num_between = static_cast<size_t>(columns_first ? part.height : num_rows) *
                           static_cast<size_t>(columns_first ? num_columns : part.width) * static_cast<size_t>(channels);
  if (memory.between.size() < num_between) memory.between.resize(num_between);
  auto* between = memory.between.data();
  if (columns_first) {
    const int num_planes = source.order == PixelOrder::kInterleaved ? 1 : channels;
    const auto row_bytes = static_cast<ptrdiff_t>(num_columns) * (channels / num_planes);
    for (int plane = 0; plane < num_planes; ++plane) {
      resample_columns(pixels.data + plane * pixels.channel, pixels.row, row_bytes, vertical, between + plane * part.height * row_bytes);
    }
    resample_rows(Pixels::in_order(source.order, between, channels, part.height, num_columns), part.height, channels, horizontal, out);
  } else {
    resample_rows(pixels, num_rows, channels, horizontal, between);
    const auto row_bytes = static_cast<ptrdiff_t>(part.width) * channels;
    resample_columns(between, row_bytes, row_bytes, vertical, out);
  }
}

}  // namespace trainer::input
