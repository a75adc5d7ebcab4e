#include "data/write_kernels.h"

#include <algorithm>

// Compiled once for each instruction set that Highway supports; the best one is selected at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/write_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trainer::data::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_NATIVE_FMA
using Values = hn::ScalableTag<float>;
using Vector = hn::Vec<Values>;

// 1 / 255 as the sum of two floats.
constexpr float kScale = static_cast<float>(1.0 / 255);
constexpr float kScaleRest = static_cast<float>(1.0 / 255 - static_cast<double>(kScale));

// The constants for three consecutive vectors of values.
struct Arithmetic {
  Vector mean[3], inverse_std[3], inverse_std_rest[3];
};

// Loads one constant of each channel into the lanes: interleaved for three channels, repeated for one.
void SpreadChannels(std::span<const ChannelArithmetic> channels, float ChannelArithmetic::*member, Vector* vectors) {
  const Values values;
  HWY_ALIGN float lanes[3 * HWY_LANES(float)];
  const auto constant = [&](size_t c) { return hn::Set(values, channels[std::min(c, channels.size() - 1)].*member); };
  hn::StoreInterleaved3(constant(0), constant(1), constant(2), values, lanes);
  for (size_t i = 0; i < 3; ++i) vectors[i] = hn::Load(values, lanes + i * hn::Lanes(values));
}

HWY_INLINE void Store(Vector result, float* out) { hn::StoreU(result, Values(), out); }

// Stores the bits of bfloat16, rounded to nearest even.
HWY_INLINE void Store(Vector result, uint16_t* out) {
  const hn::RebindToUnsigned<Values> integers;
  const hn::Rebind<uint16_t, Values> halves;
  const auto bits = hn::BitCast(integers, result);
  const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(integers, 1));
  const auto rounded = hn::Add(bits, hn::Add(is_odd, hn::Set(integers, 0x7FFF)));
  hn::StoreU(hn::TruncateTo(halves, hn::ShiftRight<16>(rounded)), halves, out);
}

// Computes (pixel / 255 - mean) / std for a vector of pixels; divisions are replaced by multiplications with two-part reciprocals.
template <class T>
HWY_INLINE void NormaliseVector(const uint8_t* pixels, const Arithmetic& arithmetic, int number, T* out) {
  const Values values;
  const hn::Rebind<int32_t, Values> integers;
  const hn::Rebind<uint8_t, Values> bytes;
  const auto pixel = hn::ConvertTo(values, hn::PromoteTo(integers, hn::LoadU(bytes, pixels)));
  const auto scaled = hn::MulAdd(pixel, hn::Set(values, kScale), hn::Mul(pixel, hn::Set(values, kScaleRest)));
  const auto centred = hn::Sub(scaled, arithmetic.mean[number]);
  Store(hn::MulAdd(centred, arithmetic.inverse_std[number], hn::Mul(centred, arithmetic.inverse_std_rest[number])), out);
}

template <class T>
bool NormaliseAs(const uint8_t* HWY_RESTRICT pixels, ptrdiff_t count, std::span<const ChannelArithmetic> channels, T* HWY_RESTRICT out) {
  Arithmetic arithmetic;
  SpreadChannels(channels, &ChannelArithmetic::mean, arithmetic.mean);
  SpreadChannels(channels, &ChannelArithmetic::inverse_std, arithmetic.inverse_std);
  SpreadChannels(channels, &ChannelArithmetic::inverse_std_rest, arithmetic.inverse_std_rest);
  const auto lanes = static_cast<ptrdiff_t>(hn::Lanes(Values()));
  ptrdiff_t i = 0;
  for (; i + 3 * lanes <= count; i += 3 * lanes) {
    for (int number = 0; number < 3; ++number) NormaliseVector(pixels + i + number * lanes, arithmetic, number, out + i + number * lanes);
  }
  for (int number = 0; i < count; ++number, i += lanes) {
    if (i + lanes <= count) {
      NormaliseVector(pixels + i, arithmetic, number, out + i);
    } else {
      T last[HWY_LANES(float)];
      NormaliseVector(pixels + i, arithmetic, number, last);
      std::copy_n(last, count - i, out + i);
    }
  }
  return true;
}
#else
template <class T>
bool NormaliseAs(const uint8_t*, ptrdiff_t, std::span<const ChannelArithmetic>, T*) {
  return false;
}
#endif

bool NormaliseAsFloat(const uint8_t* pixels, ptrdiff_t count, std::span<const ChannelArithmetic> arithmetic, float* out) {
  return NormaliseAs(pixels, count, arithmetic, out);
}
bool NormaliseAsBFloat16(const uint8_t* pixels, ptrdiff_t count, std::span<const ChannelArithmetic> arithmetic, uint16_t* out) {
  return NormaliseAs(pixels, count, arithmetic, out);
}

}  // namespace trainer::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::data {

HWY_EXPORT(NormaliseAsFloat);
HWY_EXPORT(NormaliseAsBFloat16);

bool normalise(const uint8_t* pixels, ptrdiff_t count, std::span<const ChannelArithmetic> arithmetic, float* out) {
  return HWY_DYNAMIC_DISPATCH(NormaliseAsFloat)(pixels, count, arithmetic, out);
}
bool normalise(const uint8_t* pixels, ptrdiff_t count, std::span<const ChannelArithmetic> arithmetic, uint16_t* out) {
  return HWY_DYNAMIC_DISPATCH(NormaliseAsBFloat16)(pixels, count, arithmetic, out);
}

}  // namespace trainer::data
#endif
