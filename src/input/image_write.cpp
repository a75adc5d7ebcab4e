#include "input/image_write.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <type_traits>

namespace trainer::input {
namespace {

constexpr int kPixelValues = 256;
constexpr int kOutside = -1;

template <class Real>
Real normalised(int pixel, double mean, double std) {
  return (static_cast<Real>(pixel) / Real{255} - static_cast<Real>(mean)) / static_cast<Real>(std);
}

uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t round_half_to_even = 0x7FFFU + ((bits >> 16) & 1U);
  return static_cast<uint16_t>((bits + round_half_to_even) >> 16);
}

// The row or column that is seen at `index`; kOutside for zero padding.
int source_index(int index, int size, Padding padding) {
  if (index >= 0 && index < size) return index;
  if (padding == Padding::kZero) return kOutside;
  return index < 0 ? -index : 2 * (size - 1) - index;
}

// Channels that lie side by side in the output, read from as many planes. kChannels 0: as many as the image has.
template <int kChannels, class T>
class WindowWriter {
 public:
  WindowWriter(const ImageView& image, const uint8_t* pixels, const T* table)
      : image_(image),
        pixels_(pixels),
        table_(table),
        channels_(kChannels > 0 ? kChannels : image.channels),
        plane_(static_cast<ptrdiff_t>(image.height) * image.width) {}

  void write(T* out) const {
    // The part of each written row that stored pixels fill; what lies before and behind it is padding.
    const int inside_begin = std::clamp(-image_.left, 0, image_.window_width);
    const int inside_end = std::clamp(image_.width - image_.left, inside_begin, image_.window_width);
    const int begin = image_.mirrored ? image_.window_width - inside_end : inside_begin;
    const int end = image_.mirrored ? image_.window_width - inside_begin : inside_end;
    for (int y = 0; y < image_.window_height; ++y, out += static_cast<ptrdiff_t>(image_.window_width) * channels_) {
      const int source = source_index(image_.top + y, image_.height, image_.padding);
      if (source == kOutside) {
        for (int x = 0; x < image_.window_width; ++x) write_zero(out + x * channels_);
        continue;
      }
      const uint8_t* row = pixels_ + static_cast<ptrdiff_t>(source) * image_.width;
      write_padding(row, 0, begin, out);
      if (image_.mirrored) {
        write_inside<-1>(row, source_column(begin), end - begin, out + begin * channels_);
      } else {
        write_inside<1>(row, source_column(begin), end - begin, out + begin * channels_);
      }
      write_padding(row, end, image_.window_width, out);
    }
  }

 private:
  // The stored column that is written at x; it may lie outside of the image.
  int source_column(int x) const { return image_.mirrored ? image_.left + image_.window_width - 1 - x : image_.left + x; }

  void write_zero(T* out) const {
    for (int c = 0; c < channels_; ++c) out[c] = table_[c * kPixelValues];
  }

  void write_padding(const uint8_t* row, int begin, int end, T* out) const {
    for (int x = begin; x < end; ++x) {
      const int source = source_index(source_column(x), image_.width, image_.padding);
      if (source == kOutside) {
        write_zero(out + x * channels_);
      } else {
        write_inside<1>(row, source, 1, out + x * channels_);
      }
    }
  }

  // Unrolled by hand: left alone, -O2 keeps the loop over channels, and -O3 assembles vectors from single look-ups, which is slower.
  template <int kStep>
  void write_inside(const uint8_t* row, ptrdiff_t column, int count, T* __restrict out) const {
    if (count == 0) return;
    const uint8_t* pixels = row + column;
    const int channels = kChannels > 0 ? kChannels : channels_;
    const T* __restrict table = table_;
    const ptrdiff_t plane = plane_;
#pragma GCC unroll 2
    for (int x = 0; x < count; ++x) {
#pragma GCC unroll 3
      for (int c = 0; c < channels; ++c) out[x * channels + c] = table[c * kPixelValues + pixels[c * plane + x * kStep]];
    }
  }

  const ImageView& image_;
  const uint8_t* pixels_;
  const T* table_;
  int channels_;
  ptrdiff_t plane_;
};

}  // namespace

template <class T>
std::vector<T> make_pixel_table(std::span<const double> mean, std::span<const double> std) {
  std::vector<T> table;
  table.reserve(mean.size() * kPixelValues);
  for (size_t c = 0; c < mean.size(); ++c) {
    for (int pixel = 0; pixel < kPixelValues; ++pixel) {
      if constexpr (std::is_same_v<T, uint16_t>) {
        table.push_back(bfloat16_bits(normalised<float>(pixel, mean[c], std[c])));
      } else {
        table.push_back(normalised<T>(pixel, mean[c], std[c]));
      }
    }
  }
  return table;
}

template <class T>
void write_image(const ImageView& image, std::span<const T> table, bool channels_last, T* out) {
  if (channels_last && image.channels == 3) {
    WindowWriter<3, T>(image, image.pixels, table.data()).write(out);
  } else if (channels_last && image.channels != 1) {
    WindowWriter<0, T>(image, image.pixels, table.data()).write(out);
  } else {
    const auto stored_plane = static_cast<ptrdiff_t>(image.height) * image.width;
    const auto written_plane = static_cast<ptrdiff_t>(image.window_height) * image.window_width;
    for (int c = 0; c < image.channels; ++c) {
      WindowWriter<1, T>(image, image.pixels + c * stored_plane, table.data() + c * kPixelValues).write(out + c * written_plane);
    }
  }
}

template std::vector<float> make_pixel_table<float>(std::span<const double>, std::span<const double>);
template std::vector<double> make_pixel_table<double>(std::span<const double>, std::span<const double>);
template std::vector<uint16_t> make_pixel_table<uint16_t>(std::span<const double>, std::span<const double>);
template void write_image<float>(const ImageView&, std::span<const float>, bool, float*);
template void write_image<double>(const ImageView&, std::span<const double>, bool, double*);
template void write_image<uint16_t>(const ImageView&, std::span<const uint16_t>, bool, uint16_t*);

}  // namespace trainer::input
