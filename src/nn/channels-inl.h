// Vectors of channels; loads and stores that convert between the type of a tensor and that of the computation. Included once for each
// instruction set, like Highway's own "-inl.h" headers.
#if defined(TRAINER_NN_CHANNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINER_NN_CHANNELS_INL_H
#undef TRAINER_NN_CHANNELS_INL_H
#else
#define TRAINER_NN_CHANNELS_INL_H
#endif

#include <hwy/highway.h>

#include "nn/channels.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::nn::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// WideTag has the widest vectors in use. The size of a NarrowTag vector divides kChannels.
template <class T>
using WideTag = hn::CappedTag<T, 2 * kChannels>;
template <class T>
using NarrowTag = hn::CappedTag<T, kChannels>;
template <class T>
constexpr int64_t kWideLanes = static_cast<int64_t>(hn::MaxLanes(WideTag<T>()));
template <class T>
constexpr int64_t kNarrowLanes = static_cast<int64_t>(hn::MaxLanes(NarrowTag<T>()));

// Calls act(tag, first channel) for vectors of channels that cover a multiple of kFewest channels.
template <class T, int64_t kFewest = kFewestChannels, int64_t kMost = kWideLanes<T>, class Act>
HWY_INLINE void for_each_vector(int64_t num_channels, const Act& act) {
  int64_t channel = 0;
  for (; channel + kMost <= num_channels; channel += kMost) act(hn::CappedTag<T, kMost>(), channel);
  if constexpr (kMost > kFewest) {
    // Vectors of 4 channels would enlarge the program more than they save time.
    constexpr int64_t kNext = kMost > kChannels ? kChannels : kFewest;
    for_each_vector<T, kFewest, kNext>(num_channels - channel, [&](auto tag, int64_t rest) { act(tag, channel + rest); });
  }
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load(D tag, const T* from) {
  return hn::LoadU(tag, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D tag, const BFloat16* from) {
  const hn::Rebind<uint16_t, D> halves;
  const hn::Rebind<uint32_t, D> words;
  return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, &from->bits))));
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store(hn::Vec<D> value, D tag, T* to) {
  hn::StoreU(value, tag, to);
}
// Rounds to nearest, half to even.
template <class D>
HWY_INLINE void store(hn::Vec<D> value, D /*tag*/, BFloat16* to) {
  const hn::Rebind<uint16_t, D> halves;
  const hn::Rebind<uint32_t, D> words;
  const hn::Rebind<int32_t, D> integers;
  const auto bits = hn::BitCast(words, value);
  const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(is_odd, hn::Set(words, 0x7FFF))));
  // Rounding could turn a NaN into a number.
  const auto result = hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(value)), hn::Set(words, 0x7FC0), rounded);
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(integers, result)), halves, &to->bits);
}

}  // namespace trainer::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
