// Vectors of channels. Included once for each instruction set, like Highway's own "-inl.h" headers.
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

// WideTag has the widest vectors in use. The size of a NarrowTag vector divides every supported number of channels.
template <class T>
using WideTag = hn::CappedTag<T, 2 * kChannels>;
template <class T>
using NarrowTag = hn::CappedTag<T, kChannels>;
template <class T>
constexpr int64_t kWideLanes = static_cast<int64_t>(hn::MaxLanes(WideTag<T>()));
template <class T>
constexpr int64_t kNarrowLanes = static_cast<int64_t>(hn::MaxLanes(NarrowTag<T>()));

// Calls act(tag, first channel) for each vector of channels.
template <class T, class Act>
HWY_INLINE void for_each_vector(int64_t num_channels, const Act& act) {
  int64_t channel = 0;
  for (; channel + kWideLanes<T> <= num_channels; channel += kWideLanes<T>) act(WideTag<T>(), channel);
  if constexpr (kNarrowLanes<T> < kWideLanes<T>) {
    for (; channel < num_channels; channel += kNarrowLanes<T>) act(NarrowTag<T>(), channel);
  }
}

}  // namespace trainer::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
