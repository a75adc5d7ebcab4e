#include "nn/batch_norm_cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trainer::nn {
namespace {

// Work is split by the shape only, so that sums do not depend on the number of threads.
constexpr int64_t kChunkValues = 32768;
constexpr int64_t kMaxChunks = 64;
// A block is read twice; the second read hits the L1 cache.
constexpr int64_t kBlockValues = 4096;
constexpr int64_t kBlockChannels = 64;

// Memory as [outer, channels, inner]; inner is 1 for channels_last.
struct Layout {
  int64_t outer, channels, inner = 1;

  explicit Layout(const at::Tensor& x) : outer(x.size(0)), channels(x.size(1)) {
    if (channels > 1 && x.is_contiguous(at::MemoryFormat::ChannelsLast)) {
      outer = x.numel() / channels;
      return;
    }
    TORCH_CHECK(x.is_contiguous(), "loops over channels need a contiguous or channels_last tensor, not strides ", x.strides());
    if (outer > 0) inner = x.numel() / (outer * channels);
  }
  int64_t row() const { return channels * inner; }
  int64_t num_chunks(int64_t size) const { return std::clamp<int64_t>(outer * row() / kChunkValues, 1, std::min(size, kMaxChunks)); }
};

// Calls body(chunk, begin, end) for each of num_chunks parts of [0, size), on the threads of LibTorch's operators. It uses TensorIterator
// because at::parallel_for is a header function, which is serial in code that is not compiled with LibTorch's OpenMP.
template <class Body>
void for_each_chunk(int64_t size, int64_t num_chunks, const Body& body) {
  at::Tensor marks = at::empty({num_chunks}, at::kByte);
  const auto* const base = reinterpret_cast<const char*>(marks.const_data_ptr<uint8_t>());
  const auto run = [&](char** data, const int64_t*, int64_t count, int64_t) {
    const int64_t first = data[0] - base;
    for (int64_t chunk = first; chunk < first + count; ++chunk) body(chunk, size * chunk / num_chunks, size * (chunk + 1) / num_chunks);
  };
  at::TensorIterator::nullary_op(marks).for_each(run, /*grain_size=*/1);
}

// sum_up(begin, end, out) adds a part of the outer dimension to out [width], which starts at zero. Returns [chunks, width].
template <class SumUp>
at::Tensor sum_up_chunks(const Layout& layout, int64_t width, const SumUp& sum_up) {
  if (layout.outer == 0) return at::zeros({0, width}, at::kDouble);
  const int64_t num_chunks = layout.num_chunks(layout.outer);
  at::Tensor chunks = at::zeros({num_chunks, width}, at::kDouble);
  auto* const out = chunks.mutable_data_ptr<double>();
  for_each_chunk(layout.outer, num_chunks, [&](int64_t chunk, int64_t begin, int64_t end) { sum_up(begin, end, out + chunk * width); });
  return chunks;
}

// Calls of_channel(c)(i) for each value of channel c, at index i. Values must not overlap.
template <class OfChannel>
void for_each_value(const Layout& layout, const OfChannel& of_channel) {
  const int64_t channels = layout.channels;
  const int64_t inner = layout.inner;
  const int64_t size = inner == 1 ? layout.outer : layout.outer * channels;
  if (size == 0) return;
  for_each_chunk(size, layout.num_chunks(size), [=](int64_t, int64_t begin, int64_t end) {
    if (inner == 1) {
      for (int64_t row = begin; row < end; ++row) {
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) of_channel(c)(row * channels + c);
      }
      return;
    }
    for (int64_t plane = begin; plane < end; ++plane) {
      const auto at_index = of_channel(plane % channels);
#pragma omp simd
      for (int64_t i = plane * inner; i < (plane + 1) * inner; ++i) at_index(i);
    }
  });
}

// Means and sums of squared deviations of some channels.
struct Moments {
  double* mean;
  double* m2;
};

// Merges a part of `count` values into `total`, which covers `total_count` values.
void add_moments(const double* mean, const double* m2, double count, const Moments& total, double total_count, int64_t channels) {
  const double weight = count / (total_count + count);
  const double spread = weight * total_count;
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) {
    const double delta = mean[c] - total.mean[c];
    total.mean[c] += delta * weight;
    total.m2[c] += m2[c] + delta * delta * spread;
  }
}

// Moments of one channel, whose `count` values are contiguous.
template <class T>
void plane_moments(const T* x, int64_t count, double& mean, double& m2) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]);
  const double center = sum / static_cast<double>(count);
  double squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < count; ++i) {
    const double delta = static_cast<double>(x[i]) - center;
    squares += delta * delta;
  }
  mean = center;
  m2 = squares;
}

// Moments of `channels` adjacent channels, in rows that are `stride` apart.
template <class T>
void rows_moments(const T* x, int64_t rows, int64_t stride, int64_t channels, const Moments& out) {
  std::fill_n(out.mean, channels, 0.0);
  std::fill_n(out.m2, channels, 0.0);
  for (int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) out.mean[c] += static_cast<double>(x[row * stride + c]);
  }
  for (int64_t c = 0; c < channels; ++c) out.mean[c] /= static_cast<double>(rows);
  for (int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      const double delta = static_cast<double>(x[row * stride + c]) - out.mean[c];
      out.m2[c] += delta * delta;
    }
  }
}

// Adds the moments of a part of the outer dimension to `total`, which starts at zero.
template <class T>
void chunk_moments(const T* x, int64_t outer, const Layout& layout, const Moments& total) {
  const int64_t channels = layout.channels;
  const int64_t width = layout.inner > 1 ? channels : std::min(channels, kBlockChannels);
  const int64_t height = layout.inner > 1 ? 1 : kBlockValues / width;
  std::vector<double> buffer(static_cast<size_t>(2 * width));
  const Moments part{buffer.data(), buffer.data() + width};
  for (int64_t row = 0; row < outer; row += height) {
    const int64_t rows = std::min(height, outer - row);
    for (int64_t c = 0; c < channels; c += width) {
      const int64_t num_channels = std::min(width, channels - c);
      const T* const block = x + row * layout.row() + c;
      if (layout.inner > 1) {
        for (int64_t k = 0; k < num_channels; ++k) plane_moments(block + k * layout.inner, layout.inner, part.mean[k], part.m2[k]);
      } else {
        rows_moments(block, rows, channels, num_channels, part);
      }
      add_moments(part.mean, part.m2, static_cast<double>(rows * layout.inner), {total.mean + c, total.m2 + c},
                  static_cast<double>(row * layout.inner), num_channels);
    }
  }
}

// Adds the sums of a part of the outer dimension to sum_dy [C] and sum_dy_xmu [C].
template <class T>
void add_gradient_sums(const T* dy, const T* x, const double* mean, int64_t outer, const Layout& layout, double* sum_dy,
                       double* sum_dy_xmu) {
  const int64_t channels = layout.channels;
  if (layout.inner == 1) {
    for (int64_t row = 0; row < outer; ++row) {
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) {
        const auto gradient = static_cast<double>(dy[row * channels + c]);
        sum_dy[c] += gradient;
        sum_dy_xmu[c] += gradient * (static_cast<double>(x[row * channels + c]) - mean[c]);
      }
    }
    return;
  }
  for (int64_t plane = 0; plane < outer * channels; ++plane) {
    const int64_t c = plane % channels;
    const double center = mean[c];
    double sum = 0;
    double dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = plane * layout.inner; i < (plane + 1) * layout.inner; ++i) {
      const auto gradient = static_cast<double>(dy[i]);
      sum += gradient;
      dot += gradient * (static_cast<double>(x[i]) - center);
    }
    sum_dy[c] += sum;
    sum_dy_xmu[c] += dot;
  }
}

template <class Real>
std::vector<Real> to_vector(const at::Tensor& of_channels) {
  const auto* const data = of_channels.const_data_ptr<double>();
  return {data, data + of_channels.numel()};
}

// (x − mean) · scale + shift of each channel. The rounding error of the mean is added to the shift, so that a mean of 1e4 with a deviation
// of 1e-2 loses no precision.
template <class Real>
struct Affine {
  std::vector<Real> mean, scale, shift;

  Affine(const at::Tensor& exact_mean, const at::Tensor& exact_scale, const at::Tensor& exact_shift)
      : mean(to_vector<Real>(exact_mean)), scale(to_vector<Real>(exact_scale)), shift(mean.size()) {
    for (size_t c = 0; c < mean.size(); ++c) {
      const double lost = static_cast<double>(mean[c]) - exact_mean.const_data_ptr<double>()[c];
      shift[c] = static_cast<Real>(exact_shift.const_data_ptr<double>()[c] + lost * exact_scale.const_data_ptr<double>()[c]);
    }
  }
};

template <class T>
void scale_values(const T* x, const Affine<at::opmath_type<T>>& affine, const Layout& layout, T* y) {
  using Real = at::opmath_type<T>;
  for_each_value(layout, [x, y, means = affine.mean.data(), scales = affine.scale.data(), shifts = affine.shift.data()](int64_t c) {
    return [x, y, mean = means[c], scale = scales[c], shift = shifts[c]](int64_t i) {
      y[i] = static_cast<T>((static_cast<Real>(x[i]) - mean) * scale + shift);
    };
  });
}

template <class T>
void combine_values(const T* dy, const at::opmath_type<T>* dy_scales, const T* x, const Affine<at::opmath_type<T>>& affine,
                    const Layout& layout, T* dx) {
  using Real = at::opmath_type<T>;
  for_each_value(layout, [=, means = affine.mean.data(), scales = affine.scale.data(), shifts = affine.shift.data()](int64_t c) {
    return [dy, dy_scale = dy_scales[c], x, dx, mean = means[c], scale = scales[c], shift = shifts[c]](int64_t i) {
      dx[i] = static_cast<T>(static_cast<Real>(dy[i]) * dy_scale + ((static_cast<Real>(x[i]) - mean) * scale + shift));
    };
  });
}

}  // namespace

at::Tensor channel_moments(const at::Tensor& x) {
  const Layout layout(x);
  const int64_t channels = layout.channels;
  at::Tensor chunks;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "channel_moments", [&] {
    const auto* const data = x.const_data_ptr<scalar_t>();
    chunks = sum_up_chunks(layout, 2 * channels + 1, [&](int64_t begin, int64_t end, double* out) {
      chunk_moments(data + begin * layout.row(), end - begin, layout, {out, out + channels});
      out[2 * channels] = static_cast<double>((end - begin) * layout.inner);
    });
  });
  return merge_channel_moments(chunks);
}

at::Tensor merge_channel_moments(const at::Tensor& parts) {
  const int64_t channels = (parts.size(1) - 1) / 2;
  const at::Tensor ordered = parts.contiguous();
  at::Tensor total = at::zeros({parts.size(1)}, at::kDouble);
  auto* const out = total.mutable_data_ptr<double>();
  const auto* part = ordered.const_data_ptr<double>();
  for (int64_t i = 0; i < parts.size(0); ++i, part += parts.size(1)) {
    const double count = part[2 * channels];
    if (count == 0) continue;
    add_moments(part, part + channels, count, {out, out + channels}, out[2 * channels], channels);
    out[2 * channels] += count;
  }
  return total;
}

at::Tensor channel_gradient_sums(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean) {
  const Layout layout(x);
  const int64_t channels = layout.channels;
  at::Tensor chunks;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "channel_gradient_sums", [&] {
    const auto* const dy_data = dy.const_data_ptr<scalar_t>();
    const auto* const x_data = x.const_data_ptr<scalar_t>();
    chunks = sum_up_chunks(layout, 2 * channels, [&](int64_t begin, int64_t end, double* out) {
      const int64_t offset = begin * layout.row();
      add_gradient_sums(dy_data + offset, x_data + offset, mean.const_data_ptr<double>(), end - begin, layout, out, out + channels);
    });
  });
  return chunks.sum(0);
}

at::Tensor scale_channels(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale, const at::Tensor& shift) {
  const Layout layout(x);
  at::Tensor y = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "scale_channels", [&] {
    const Affine<at::opmath_type<scalar_t>> affine(mean, scale, shift);
    scale_values(x.const_data_ptr<scalar_t>(), affine, layout, y.mutable_data_ptr<scalar_t>());
  });
  return y;
}

at::Tensor combine_channels(const at::Tensor& dy, const at::Tensor& dy_scale, const at::Tensor& x, const at::Tensor& mean,
                            const at::Tensor& x_scale, const at::Tensor& shift) {
  const Layout layout(x);
  at::Tensor dx = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "combine_channels", [&] {
    using Real = at::opmath_type<scalar_t>;
    const Affine<Real> affine(mean, x_scale, shift);
    const std::vector<Real> dy_scales = to_vector<Real>(dy_scale);
    combine_values(dy.const_data_ptr<scalar_t>(), dy_scales.data(), x.const_data_ptr<scalar_t>(), affine, layout,
                   dx.mutable_data_ptr<scalar_t>());
  });
  return dx;
}

}  // namespace trainer::nn
