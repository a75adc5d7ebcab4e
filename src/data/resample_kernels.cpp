#include "data/resample_kernels.h"

#include <algorithm>
#include <cstring>

// Compiled once for each instruction set that Highway supports; the best one is selected at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/resample_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trainer::data::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int32_t kHalf = 1 << (kFractionBits - 1);

uint8_t to_pixel(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255)); }

// Computes one output of each of kRows rows, with the same weights for all of them. Writes kBytes bytes per row, three or four. kCount is
// the number of taps if it is known at compile time, otherwise 0; then `count` is the number of taps.
template <int kRows, int kCount, int kBytes>
HWY_INLINE void WeighPixel(const uint8_t* HWY_RESTRICT pixel, ptrdiff_t stride, const int32_t* HWY_RESTRICT weights, int count,
                           uint8_t* HWY_RESTRICT out, ptrdiff_t out_stride) {
  const int num_taps = kCount > 0 ? kCount : count;
#if HWY_TARGET == HWY_SCALAR
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < 3; ++c) {
      int32_t sum = kHalf;
      for (int k = 0; k < num_taps; ++k) sum += pixel[r * stride + 3 * k + c] * weights[k];
      out[r * out_stride + c] = to_pixel(sum);
    }
  }
#else
  // Four lanes: the three channels of a pixel, and the first byte of the next one, whose result is not used.
  const hn::FixedTag<uint8_t, 4> bytes;
  const hn::FixedTag<int32_t, 4> sums;
  hn::Vec<decltype(sums)> sum[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sum[r] = hn::Set(sums, kHalf);
#pragma GCC unroll 4
  for (int k = 0; k < num_taps; ++k) {
    const auto weight = hn::Set(sums, weights[k]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      sum[r] = hn::Add(sum[r], hn::Mul(hn::PromoteTo(sums, hn::LoadU(bytes, pixel + r * stride + 3 * k)), weight));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    uint8_t result[4];
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<kFractionBits>(sum[r])), bytes, result);
    std::memcpy(out + r * out_stride, result, kBytes);
  }
#endif
}

template <int kRows, int kCount>
void WeighPixels(const uint8_t* HWY_RESTRICT rows, ptrdiff_t stride, const int32_t* HWY_RESTRICT begins,
                 const int32_t* HWY_RESTRICT weights, int count, int num_outputs, uint8_t* HWY_RESTRICT out) {
  const ptrdiff_t out_stride = ptrdiff_t{3} * num_outputs;
  const auto pixel_of = [&](int i) { return rows + begins[i] * ptrdiff_t{3}; };
  // The fourth byte is overwritten by the next output; the last output has no next one.
  int i = 0;
  for (; i + 1 < num_outputs; ++i, weights += count, out += 3) {
    WeighPixel<kRows, kCount, 4>(pixel_of(i), stride, weights, count, out, out_stride);
  }
  WeighPixel<kRows, kCount, 3>(pixel_of(i), stride, weights, count, out, out_stride);
}

template <int kCount>
void WeighAllRows(const uint8_t* rows, ptrdiff_t stride, int num_rows, const int32_t* begins, const int32_t* weights, int count,
                  int num_outputs, uint8_t* out) {
  constexpr int kRows = 4;
  const ptrdiff_t out_stride = ptrdiff_t{3} * num_outputs;
  for (; num_rows >= kRows; num_rows -= kRows, rows += kRows * stride, out += kRows * out_stride) {
    WeighPixels<kRows, kCount>(rows, stride, begins, weights, count, num_outputs, out);
  }
  for (; num_rows > 0; --num_rows, rows += stride, out += out_stride) {
    WeighPixels<1, kCount>(rows, stride, begins, weights, count, num_outputs, out);
  }
}

void WeighPixelsOfThree(const uint8_t* rows, ptrdiff_t stride, int num_rows, const int32_t* begins, const int32_t* weights, int count,
                        int num_outputs, uint8_t* out) {
  const auto weigh = count == 2 ? WeighAllRows<2> : count == 3 ? WeighAllRows<3> : count == 4 ? WeighAllRows<4> : WeighAllRows<0>;
  weigh(rows, stride, num_rows, begins, weights, count, num_outputs, out);
}

void WeighRows(const uint8_t* HWY_RESTRICT rows, ptrdiff_t stride, const int32_t* HWY_RESTRICT weights, int count, ptrdiff_t num_bytes,
               uint8_t* HWY_RESTRICT out) {
  const hn::ScalableTag<int32_t> sums;
  const hn::Rebind<uint8_t, decltype(sums)> bytes;
  const auto lanes = static_cast<ptrdiff_t>(hn::Lanes(sums));
  ptrdiff_t i = 0;
  for (; i + 2 * lanes <= num_bytes; i += 2 * lanes) {
    auto first = hn::Set(sums, kHalf);
    auto second = first;
    for (int k = 0; k < count; ++k) {
      const uint8_t* row = rows + k * stride + i;
      const auto weight = hn::Set(sums, weights[k]);
      first = hn::Add(first, hn::Mul(hn::PromoteTo(sums, hn::LoadU(bytes, row)), weight));
      second = hn::Add(second, hn::Mul(hn::PromoteTo(sums, hn::LoadU(bytes, row + lanes)), weight));
    }
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<kFractionBits>(first)), bytes, out + i);
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<kFractionBits>(second)), bytes, out + i + lanes);
  }
  for (; i < num_bytes; ++i) {
    int32_t sum = kHalf;
    for (int k = 0; k < count; ++k) sum += rows[k * stride + i] * weights[k];
    out[i] = to_pixel(sum);
  }
}

}  // namespace trainer::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::data {

HWY_EXPORT(WeighPixelsOfThree);
HWY_EXPORT(WeighRows);

void weigh_pixels_of_three(const uint8_t* rows, ptrdiff_t stride, int num_rows, const int32_t* begins, const int32_t* weights, int count,
                           int num_outputs, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(WeighPixelsOfThree)(rows, stride, num_rows, begins, weights, count, num_outputs, out);
}
void weigh_rows(const uint8_t* rows, ptrdiff_t stride, const int32_t* weights, int count, ptrdiff_t num_bytes, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(WeighRows)(rows, stride, weights, count, num_bytes, out);
}

}  // namespace trainer::data
#endif
