#include "data/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "data/resample_kernels.h"

namespace trainer::data {
namespace {

constexpr int32_t kHalf = 1 << (kFractionBits - 1);

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// The cubic convolution kernel of R. Keys, with Pillow's parameter and order of operations.
double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

// A sinc multiplied by a window that is a sinc of three times its width.
double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

struct Filter {
  double (*weight)(double x);  // null if only the nearest pixel is used
  double support;              // at larger distances from 0, the weight is 0
};

Filter filter_of(Interpolation interpolation) {
  switch (interpolation) {
    case Interpolation::kBilinear:
      return {triangle, 1};
    case Interpolation::kBicubic:
      return {cubic, 2};
    case Interpolation::kLanczos:
      return {lanczos, 3};
    case Interpolation::kNearest:
      break;
  }
  return {nullptr, 0};
}

// The range of input pixels from which one output is computed.
struct Support {
  int begin = 0;
  int num = 0;
};

// `reach`: how far the filter extends, in pixels of the input.
Support support_of(int output, double scale, double reach, int in_size) {
  const double center = (output + 0.5) * scale;
  const int begin = std::max(static_cast<int>(center - reach + 0.5), 0);
  return {begin, std::min(static_cast<int>(center + reach + 0.5), in_size) - begin};
}

int32_t to_fixed_point(double weight) { return static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kFractionBits)); }

// Like compute_taps(), but for the nearest pixel. Steps are accumulated as in Pillow, because their rounding decides between two pixels at
// the same distance.
void find_nearest(double scale, int first, int num_outputs, bool is_exact, Taps& taps) {
  taps.count = 1;
  taps.begin.resize(static_cast<size_t>(num_outputs));
  taps.weights.assign(is_exact ? 0 : static_cast<size_t>(num_outputs), 1 << kFractionBits);
  taps.exact_weights.assign(is_exact ? static_cast<size_t>(num_outputs) : 0, 1);
  double at = scale * 0.5;
  for (int i = 0; i < first + num_outputs; ++i, at += scale) {
    if (i >= first) taps.begin[static_cast<size_t>(i - first)] = static_cast<int>(at);
  }
}

// Computes the taps of the outputs first to first + num_outputs - 1 when `in_size` pixels are resampled to `out_size`. If `is_exact`,
// weights are not rounded.
void compute_taps(int in_size, int out_size, int first, int num_outputs, const Filter& filter, bool is_exact,
                  std::vector<double>& unrounded, Taps& taps) {
  const double scale = static_cast<double>(in_size) / out_size;
  if (filter.weight == nullptr) return find_nearest(scale, first, num_outputs, is_exact, taps);
  const double filter_scale = std::max(scale, 1.0);
  const double reach = filter.support * filter_scale;
  taps.count = 0;
  for (int i = first; i < first + num_outputs; ++i) taps.count = std::max(taps.count, support_of(i, scale, reach, in_size).num);
  const auto count = static_cast<size_t>(taps.count);
  taps.begin.resize(static_cast<size_t>(num_outputs));
  const size_t num_weights = static_cast<size_t>(num_outputs) * count;
  taps.weights.assign(is_exact ? 0 : num_weights, 0);
  taps.exact_weights.assign(is_exact ? num_weights : 0, 0);
  unrounded.resize(count);
  for (size_t i = 0; i < static_cast<size_t>(num_outputs); ++i) {
    const int output = first + static_cast<int>(i);
    const auto [begin, num] = support_of(output, scale, reach, in_size);
    const double center = (output + 0.5) * scale;
    double sum = 0;
    for (int k = 0; k < num; ++k) {
      unrounded[static_cast<size_t>(k)] = filter.weight((k + begin - center + 0.5) * (1.0 / filter_scale));
      sum += unrounded[static_cast<size_t>(k)];
    }
    // All outputs have the same number of taps; outputs that need fewer have weights of zero.
    taps.begin[i] = std::min(begin, in_size - taps.count);
    const auto first_weight = i * count + static_cast<size_t>(begin - taps.begin[i]);
    for (size_t k = 0; k < static_cast<size_t>(num); ++k) {
      const double weight = unrounded[k] / sum;
      if (is_exact) {
        taps.exact_weights[first_weight + k] = weight;
      } else {
        taps.weights[first_weight + k] = to_fixed_point(weight);
      }
    }
  }
}

// Shifts the taps so that the first pixel that is needed has index 0, and sets `first` to its previous index. Returns the number of pixels
// that are needed.
int drop_unused(Taps& taps, int& first) {
  first = taps.begin.front();
  for (int& begin : taps.begin) begin -= first;
  return taps.begin.back() + taps.count;
}

// Pixels in memory, with their strides in bytes.
struct Pixels {
  const uint8_t* data = nullptr;
  ptrdiff_t row = 0;
  ptrdiff_t column = 0;
  ptrdiff_t channel = 0;

  static Pixels in_order(PixelOrder order, const uint8_t* data, int channels, int height, int width) {
    if (order == PixelOrder::kInterleaved) return {data, static_cast<ptrdiff_t>(width) * channels, channels, 1};
    return {data, width, 1, static_cast<ptrdiff_t>(height) * width};
  }
  // The pixels from (top, left) on.
  Pixels from(int top, int left) const { return {data + top * row + left * column, row, column, channel}; }
};

// One output row of the horizontal pass, channels interleaved.
void resample_row(const Pixels& pixels, const uint8_t* row, int channels, const Taps& taps, uint8_t* out) {
  for (size_t x = 0; x < taps.begin.size(); ++x) {
    const int32_t* weights = &taps.weights[x * static_cast<size_t>(taps.count)];
    const uint8_t* pixel = row + taps.begin[x] * pixels.column;
    for (int c = 0; c < channels; ++c) {
      int32_t sum = kHalf;
      for (int k = 0; k < taps.count; ++k) sum += pixel[k * pixels.column + c * pixels.channel] * weights[k];
      *out++ = static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
    }
  }
}

// Writes `num_rows` rows, each with one pixel per output of `taps`. `end`: end of the memory that may be read.
void resample_rows(const Pixels& pixels, const uint8_t* end, int num_rows, int channels, const Taps& taps, uint8_t* out) {
  const auto num_outputs = static_cast<int>(taps.begin.size());
  const ptrdiff_t row_bytes = static_cast<ptrdiff_t>(num_outputs) * channels;
  const ptrdiff_t last_byte = (taps.begin.back() + taps.count) * pixels.column;
  int y = 0;
  if (channels == 3 && pixels.column == 3) {
    // The kernel also reads the byte after the pixels of a row. Only in the last row can that byte be at or after `end`.
    const bool has_next_byte = end - (pixels.data + (num_rows - 1) * pixels.row) > last_byte;
    y = has_next_byte ? num_rows : num_rows - 1;
    weigh_pixels_of_three(pixels.data, pixels.row, y, taps.begin.data(), taps.weights.data(), taps.count, num_outputs, out);
  }
  for (; y < num_rows; ++y) resample_row(pixels, pixels.data + y * pixels.row, channels, taps, out + y * row_bytes);
}

void resample_columns(const uint8_t* rows, ptrdiff_t stride, ptrdiff_t row_bytes, const Taps& taps, uint8_t* out) {
  for (size_t y = 0; y < taps.begin.size(); ++y) {
    weigh_rows(rows + taps.begin[y] * stride, stride, &taps.weights[y * static_cast<size_t>(taps.count)], taps.count, row_bytes,
               out + static_cast<ptrdiff_t>(y) * row_bytes);
  }
}

// Whether the vertical pass is the first one, as in Pillow 13 (github.com/python-pillow/Pillow/pull/9549); the order affects the rounding.
bool begins_with_columns(const ImageView& source, int height, int width) {
  const int less_height = source.window_height - height;
  return less_height > 0 && less_height > 2 * (source.window_width - width);
}

// The strides of one direction of resample_values(), in values.
struct Line {
  ptrdiff_t step = 0;  // to the next value of the line
  ptrdiff_t next = 0;  // to the next line
};

// Resamples `num_lines` rows or columns. `maximum`: the maximum of unsigned integer values; 0 for other values.
void weigh_values(const float* in, const Line& from, ptrdiff_t num_lines, const Taps& taps, float maximum, float* out, const Line& to) {
  for (ptrdiff_t line = 0; line < num_lines; ++line, in += from.next, out += to.next) {
    for (size_t i = 0; i < taps.begin.size(); ++i) {
      const double* weights = &taps.exact_weights[i * static_cast<size_t>(taps.count)];
      const float* value = in + taps.begin[i] * from.step;
      double sum = 0;
      for (int k = 0; k < taps.count; ++k) sum += value[k * from.step] * weights[k];
      if (maximum > 0) sum = std::clamp(std::trunc(sum + (sum < 0 ? -0.5 : 0.5)), 0.0, static_cast<double>(maximum));
      out[static_cast<ptrdiff_t>(i) * to.step] = static_cast<float>(sum);
    }
  }
}

}  // namespace

Box prepare_resample(const ImageView& source, int height, int width, const Box& part, Interpolation interpolation, ResampleMemory& memory) {
  const auto filter = filter_of(interpolation);
  // `values` is already set here, because images with values are decoded before they are resampled.
  const bool is_exact = source.values != nullptr;
  compute_taps(source.window_width, width, part.left, part.width, filter, is_exact, memory.unrounded, memory.horizontal);
  compute_taps(source.window_height, height, part.top, part.height, filter, is_exact, memory.unrounded, memory.vertical);
  if (part.height == 0 || part.width == 0) return {};
  Box needed;
  needed.height = drop_unused(memory.vertical, needed.top);
  needed.width = drop_unused(memory.horizontal, needed.left);
  return needed;
}

void resample(const ImageView& source, int height, int width, const Box& part, const Box& needed, ResampleMemory& memory, uint8_t* out) {
  if (part.height == 0 || part.width == 0) return;
  const auto& horizontal = memory.horizontal;
  const auto& vertical = memory.vertical;
  const int channels = source.channels;
  const auto pixels = Pixels::in_order(source.order, source.pixels, channels, source.height, source.width)
                          .from(source.top + needed.top, source.left + needed.left);
  const bool columns_first = begins_with_columns(source, height, width);
  const auto num_between = static_cast<size_t>(columns_first ? part.height : needed.height) *
                           static_cast<size_t>(columns_first ? needed.width : part.width) * static_cast<size_t>(channels);
  if (memory.between.size() < num_between) memory.between.resize(num_between);
  auto* between = memory.between.data();
  if (columns_first) {
    const int num_planes = source.order == PixelOrder::kInterleaved ? 1 : channels;
    const auto row_bytes = static_cast<ptrdiff_t>(needed.width) * (channels / num_planes);
    for (int plane = 0; plane < num_planes; ++plane) {
      resample_columns(pixels.data + plane * pixels.channel, pixels.row, row_bytes, vertical, between + plane * part.height * row_bytes);
    }
    resample_rows(Pixels::in_order(source.order, between, channels, part.height, needed.width), between + num_between, part.height,
                  channels, horizontal, out);
  } else {
    const uint8_t* end = source.pixels + static_cast<ptrdiff_t>(source.height) * source.width * channels;
    resample_rows(pixels, end, needed.height, channels, horizontal, between);
    const auto row_bytes = static_cast<ptrdiff_t>(part.width) * channels;
    resample_columns(between, row_bytes, row_bytes, vertical, out);
  }
}

void resample_values(const ImageView& source, int height, int width, const Box& part, const Box& needed, ResampleMemory& memory,
                     float* out) {
  if (part.height == 0 || part.width == 0) return;
  const ptrdiff_t channels = source.channels;
  const ptrdiff_t source_row = source.width * channels;
  const float* in = source.values + (source.top + needed.top) * source_row + (source.left + needed.left) * channels;
  const bool columns_first = begins_with_columns(source, height, width);
  const ptrdiff_t between_height = columns_first ? part.height : needed.height;
  const ptrdiff_t between_row = (columns_first ? needed.width : part.width) * channels;
  const ptrdiff_t out_row = part.width * channels;
  memory.values_between.resize(static_cast<size_t>(between_height * between_row));
  auto* between = memory.values_between.data();
  const auto weigh_rows_of = [&](const float* from, ptrdiff_t from_row, ptrdiff_t num_rows, float* to, ptrdiff_t to_row) {
    for (ptrdiff_t c = 0; c < channels; ++c) {
      weigh_values(from + c, {channels, from_row}, num_rows, memory.horizontal, source.maximum, to + c, {channels, to_row});
    }
  };
  if (columns_first) {
    weigh_values(in, {source_row, 1}, between_row, memory.vertical, source.maximum, between, {between_row, 1});
    weigh_rows_of(between, between_row, between_height, out, out_row);
  } else {
    weigh_rows_of(in, source_row, between_height, between, between_row);
    weigh_values(between, {between_row, 1}, out_row, memory.vertical, source.maximum, out, {out_row, 1});
  }
}

}  // namespace trainer::data
