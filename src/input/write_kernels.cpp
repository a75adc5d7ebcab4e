#include "input/write_kernels.h"

#include <cmath>

// Compiled once for each kind of processor that Highway knows; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "input/write_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trainer::input::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_NATIVE_FMA
// As compute_row() in image_write.cpp.
template <class D>
hn::Vec<D> Normalise(D values, hn::Vec<D> pixel, const ChannelArithmetic& channel) {
  const auto rest = hn::Mul(pixel, hn::Set(values, kPixelScale.rest));
  const auto centred = hn::Sub(hn::MulAdd(pixel, hn::Set(values, kPixelScale.rounded), rest), hn::Set(values, channel.mean));
  return hn::MulAdd(centred, hn::Set(values, channel.inverse_std), hn::Mul(centred, hn::Set(values, channel.inverse_std_rest)));
}

// As many pixels as a vector of type D has lanes; `out`: of the first one that is written.
template <class D>
void NormalisePixels(D values, const uint8_t* HWY_RESTRICT pixels, bool mirrored, const ChannelArithmetic* arithmetic, ptrdiff_t plane,
                     float* HWY_RESTRICT out) {
  const hn::Rebind<int32_t, D> integers;
  const hn::Rebind<uint8_t, D> bytes;
  hn::Vec<decltype(bytes)> stored[3];
  hn::LoadInterleaved3(bytes, pixels, stored[0], stored[1], stored[2]);
  hn::Vec<D> channels[3];
  for (int c = 0; c < 3; ++c) {
    channels[c] = Normalise(values, hn::ConvertTo(values, hn::PromoteTo(integers, stored[c])), arithmetic[c]);
    if (mirrored) channels[c] = hn::Reverse(values, channels[c]);
    if (plane != 0) hn::StoreU(channels[c], values, out + c * plane);
  }
  if (plane == 0) hn::StoreInterleaved3(channels[0], channels[1], channels[2], values, out);
}

bool NormalisePixelsOfThree(const uint8_t* pixels, int count, bool mirrored, const ChannelArithmetic* arithmetic, ptrdiff_t plane,
                            float* out) {
  const hn::ScalableTag<float> values;
  const auto lanes = static_cast<int>(hn::Lanes(values));
  const int step = plane == 0 ? 3 : 1;
  const auto pixels_at = [&](int x, int num) { return pixels + 3 * static_cast<ptrdiff_t>(mirrored ? count - x - num : x); };
  int x = 0;
  for (; x + lanes <= count; x += lanes) NormalisePixels(values, pixels_at(x, lanes), mirrored, arithmetic, plane, out + x * step);
  for (; x < count; ++x) {
    for (int c = 0; c < 3; ++c) {
      const auto pixel = static_cast<float>(pixels_at(x, 1)[c]);
      const auto& channel = arithmetic[c];
      const float centred = std::fma(pixel, kPixelScale.rounded, pixel * kPixelScale.rest) - channel.mean;
      out[x * step + c * (plane == 0 ? 1 : plane)] = std::fma(centred, channel.inverse_std, centred * channel.inverse_std_rest);
    }
  }
  return true;
}
#else
bool NormalisePixelsOfThree(const uint8_t*, int, bool, const ChannelArithmetic*, ptrdiff_t, float*) { return false; }
#endif

}  // namespace trainer::input::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::input {

HWY_EXPORT(NormalisePixelsOfThree);

bool normalise_pixels_of_three(const uint8_t* pixels, int count, bool mirrored, const ChannelArithmetic* arithmetic, ptrdiff_t plane,
                               float* out) {
  return HWY_DYNAMIC_DISPATCH(NormalisePixelsOfThree)(pixels, count, mirrored, arithmetic, plane, out);
}

}  // namespace trainer::input
#endif
