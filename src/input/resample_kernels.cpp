#include "input/resample_kernels.h"

#include <algorithm>
#include <cstring>

// Compiled once for each kind of processor that Highway knows; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "input/resample_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trainer::input::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int32_t kHalf = 1 << (kFractionBits - 1);

uint8_t to_pixel(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255)); }

void WeighPixelsOfThree(const uint8_t* HWY_RESTRICT row, const int32_t* HWY_RESTRICT begins, const int32_t* HWY_RESTRICT weights, int count,
                        int num_outputs, uint8_t* HWY_RESTRICT out) {
  for (int i = 0; i < num_outputs; ++i, weights += count, out += 3) {
    const uint8_t* pixel = row + begins[i] * ptrdiff_t{3};
#if HWY_TARGET == HWY_SCALAR
    for (int c = 0; c < 3; ++c) {
      int32_t sum = kHalf;
      for (int k = 0; k < count; ++k) sum += pixel[3 * k + c] * weights[k];
      out[c] = to_pixel(sum);
    }
#else
    // A pixel and the first byte of the next one.
    const hn::FixedTag<uint8_t, 4> bytes;
    const hn::FixedTag<int32_t, 4> sums;
    uint8_t result[4];
    auto sum = hn::Set(sums, kHalf);
    for (int k = 0; k < count; ++k, pixel += 3) {
      sum = hn::Add(sum, hn::Mul(hn::PromoteTo(sums, hn::LoadU(bytes, pixel)), hn::Set(sums, weights[k])));
    }
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<kFractionBits>(sum)), bytes, result);
    std::memcpy(out, result, 3);
#endif
  }
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

}  // namespace trainer::input::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::input {

HWY_EXPORT(WeighPixelsOfThree);
HWY_EXPORT(WeighRows);

void weigh_pixels_of_three(const uint8_t* row, const int32_t* begins, const int32_t* weights, int count, int num_outputs, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(WeighPixelsOfThree)(row, begins, weights, count, num_outputs, out);
}
void weigh_rows(const uint8_t* rows, ptrdiff_t stride, const int32_t* weights, int count, ptrdiff_t num_bytes, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(WeighRows)(rows, stride, weights, count, num_bytes, out);
}

}  // namespace trainer::input
#endif
