#include "data/window_copy.h"

#include <algorithm>
#include <cstddef>

// Compiled once for each instruction set that Highway supports; the best one is selected at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/window_copy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trainer::data::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kOutside = -1;

// The stored row or column that `index` maps to; kOutside for zero padding.
int SourceIndex(int index, int size, Padding padding) {
  if (index >= 0 && index < size) return index;
  if (padding == Padding::kZero) return kOutside;
  return index < 0 ? -index : 2 * (size - 1) - index;
}

template <class T>
struct Copy {
  ImageView image;
  const T* stored;  // the image's pixels or values
  int begin, end;   // rows of the window
  PixelOrder order;
  T* out;
  T padding;  // the value of zero padding

  ptrdiff_t stored_plane() const { return static_cast<ptrdiff_t>(image.height) * image.width; }
  ptrdiff_t written_plane() const { return static_cast<ptrdiff_t>(end - begin) * image.window_width; }
  // Returns `count` bytes from `offset` on. They are copied to `buffer` if some of them are outside the image; bytes outside the image have
  // undefined values.
  const T* stored_bytes(ptrdiff_t offset, ptrdiff_t count, T* buffer) const {
    const ptrdiff_t num_stored = stored_plane() * image.channels;
    if (offset >= 0 && offset + count <= num_stored) return stored + offset;
    for (ptrdiff_t i = 0; i < count; ++i) buffer[i] = stored[std::clamp<ptrdiff_t>(offset + i, 0, num_stored - 1)];
    return buffer;
  }
  int source_row(int y) const {
    return SourceIndex(image.flipped ? image.top + image.window_height - 1 - y : image.top + y, image.height, image.padding);
  }
};

// Copies the columns x_begin to x_end of row y one by one.
template <class T>
void CopyPixels(const Copy<T>& copy, int y, int x_begin, int x_end) {
  const auto& image = copy.image;
  const bool from_pixels = image.order == PixelOrder::kInterleaved;
  const bool to_pixels = copy.order == PixelOrder::kInterleaved;
  const ptrdiff_t row = copy.source_row(y);
  for (int x = x_begin; x < x_end; ++x) {
    const int at = image.mirrored ? image.left + image.window_width - 1 - x : image.left + x;
    const int column = row == kOutside ? kOutside : SourceIndex(at, image.width, image.padding);
    const ptrdiff_t from = (row * image.width + column) * (from_pixels ? image.channels : 1);
    auto* to = copy.out + (static_cast<ptrdiff_t>(y - copy.begin) * image.window_width + x) * (to_pixels ? image.channels : 1);
    for (int c = 0; c < image.channels; ++c) {
      to[c * (to_pixels ? 1 : copy.written_plane())] =
          column == kOutside ? copy.padding : copy.stored[from + c * (from_pixels ? 1 : copy.stored_plane())];
    }
  }
}

// Not every supported version of Highway has a function that reverses bytes.
template <class D>
hn::Vec<D> ReverseBytes([[maybe_unused]] D bytes, hn::Vec<D> vector) {
#if HWY_TARGET == HWY_SCALAR
  return vector;
#else
  const hn::Repartition<uint16_t, D> pairs;
  const auto reversed = hn::Reverse(pairs, hn::BitCast(pairs, vector));
  return hn::BitCast(bytes, hn::Or(hn::ShiftLeft<8>(reversed), hn::ShiftRight<8>(reversed)));
#endif
}

// Copies one column per lane of a vector of type D, from column x on, for all rows. Copies three channels or, if kChannels is 1, channel
// number `channel`, which is a plane of both the image and the output. Columns outside the image are padding.
template <int kChannels, bool kFromPixels, bool kToPixels, class D>
void CopyColumns(D bytes, const Copy<uint8_t>& copy, int channel, int x) {
  const auto& image = copy.image;
  const auto lanes = static_cast<int>(hn::Lanes(bytes));
  const int column = image.mirrored ? image.left + image.window_width - x - lanes : image.left + x;
  const auto first_lanes = [&](int count) { return hn::FirstN(bytes, static_cast<size_t>(std::clamp(count, 0, lanes))); };
  auto inside = hn::VecFromMask(bytes, hn::AndNot(first_lanes(-column), first_lanes(image.width - column)));
  if (image.mirrored) inside = ReverseBytes(bytes, inside);
  const auto padding = hn::Set(bytes, copy.padding);
  const auto outside = hn::AndNot(inside, padding);

  uint8_t* out = copy.out + channel * copy.written_plane() + static_cast<ptrdiff_t>(x) * (kToPixels ? 3 : 1);
  for (int y = copy.begin; y < copy.end; ++y, out += static_cast<ptrdiff_t>(image.window_width) * (kToPixels ? 3 : 1)) {
    hn::Vec<D> pixels[3] = {padding, padding, padding};
    if (const int row = copy.source_row(y); row != kOutside) {
      const ptrdiff_t at = static_cast<ptrdiff_t>(row) * image.width + column;
      HWY_ALIGN uint8_t buffer[3 * 32];
      if constexpr (kFromPixels) {
        hn::LoadInterleaved3(bytes, copy.stored_bytes(3 * at, ptrdiff_t{3} * lanes, buffer), pixels[0], pixels[1], pixels[2]);
      } else {
        for (int c = 0; c < kChannels; ++c) {
          pixels[c] = hn::LoadU(bytes, copy.stored_bytes((channel + c) * copy.stored_plane() + at, lanes, buffer));
        }
      }
      for (int c = 0; c < kChannels; ++c) {
        if (image.mirrored) pixels[c] = ReverseBytes(bytes, pixels[c]);
        pixels[c] = hn::Or(hn::And(pixels[c], inside), outside);
      }
    }
    if constexpr (kToPixels) {
      hn::StoreInterleaved3(pixels[0], pixels[1], pixels[2], bytes, out);
    } else {
      for (int c = 0; c < kChannels; ++c) hn::StoreU(pixels[c], bytes, out + c * copy.written_plane());
    }
  }
}

// Copies all columns, one vector of type D at a time. There must be at least one column per lane; some columns may be copied twice.
template <int kChannels, bool kFromPixels, bool kToPixels, class D>
void CopyAllColumns(D bytes, const Copy<uint8_t>& copy, int channel) {
  const auto lanes = static_cast<int>(hn::Lanes(bytes));
  for (int x = 0; x < copy.image.window_width; x += lanes) {
    CopyColumns<kChannels, kFromPixels, kToPixels>(bytes, copy, channel, std::min(x, copy.image.window_width - lanes));
  }
}

template <int kChannels, bool kFromPixels, bool kToPixels>
void CopyWindow(const Copy<uint8_t>& copy, int channel) {
  const hn::CappedTag<uint8_t, 32> wide;
  const hn::CappedTag<uint8_t, 16> narrow;
  const auto width = static_cast<size_t>(copy.image.window_width);
  if (width >= hn::Lanes(wide)) {
    CopyAllColumns<kChannels, kFromPixels, kToPixels>(wide, copy, channel);
  } else if (width >= hn::Lanes(narrow)) {
    CopyAllColumns<kChannels, kFromPixels, kToPixels>(narrow, copy, channel);
  } else {
    for (int y = copy.begin; y < copy.end; ++y) CopyPixels(copy, y, 0, copy.image.window_width);
  }
}

void CopyWithoutReflection(const Copy<uint8_t>& copy) {
  const auto& image = copy.image;
  const bool from_pixels = image.order == PixelOrder::kInterleaved;
  const bool to_pixels = copy.order == PixelOrder::kInterleaved;
  if (from_pixels && to_pixels && !image.mirrored) {
    // Treats each row as a row of a wider image with one channel.
    auto bytes = copy;
    bytes.image.channels = 1;
    for (int* columns : {&bytes.image.width, &bytes.image.left, &bytes.image.window_width}) *columns *= image.channels;
    bytes.image.order = bytes.order = PixelOrder::kPlanar;
    CopyWindow<1, false, false>(bytes, 0);
  } else if (!from_pixels && !to_pixels) {
    for (int c = 0; c < image.channels; ++c) CopyWindow<1, false, false>(copy, c);
  } else if (image.channels != 3) {
    for (int y = copy.begin; y < copy.end; ++y) CopyPixels(copy, y, 0, image.window_width);
  } else if (!from_pixels) {
    CopyWindow<3, false, true>(copy, 0);
  } else if (to_pixels) {
    CopyWindow<3, true, true>(copy, 0);
  } else {
    CopyWindow<3, true, false>(copy, 0);
  }
}

void CopyRows(const ImageView& image, int begin, int end, PixelOrder order, uint8_t* out) {
  const Copy<uint8_t> copy{image, image.pixels, begin, end, order, out, image.fill};
  CopyWithoutReflection(copy);
  if (image.padding == Padding::kZero) return;
  const int before = std::clamp(-image.left, 0, image.window_width);
  const int behind = std::clamp(image.left + image.window_width - image.width, 0, image.window_width);
  for (int y = begin; y < end; ++y) {
    CopyPixels(copy, y, 0, image.mirrored ? behind : before);
    CopyPixels(copy, y, image.window_width - (image.mirrored ? before : behind), image.window_width);
  }
}

}  // namespace trainer::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::data {

HWY_EXPORT(CopyRows);

void copy_rows(const ImageView& image, int begin, int end, PixelOrder order, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(CopyRows)(image, begin, end, order, out);
}

void copy_values(const ImageView& image, float* out) {
  const HWY_NAMESPACE::Copy<float> copy{image, image.values, 0, image.window_height, PixelOrder::kInterleaved, out, 0};
  for (int y = 0; y < image.window_height; ++y) HWY_NAMESPACE::CopyPixels(copy, y, 0, image.window_width);
}

}  // namespace trainer::data
#endif
