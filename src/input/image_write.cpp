#include "input/image_write.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "input/write_kernels.h"

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

// The stored row or column that `index` maps to; kOutside for zero padding.
int source_index(int index, int size, Padding padding) {
  if (index >= 0 && index < size) return index;
  if (padding == Padding::kZero) return kOutside;
  return index < 0 ? -index : 2 * (size - 1) - index;
}

#ifdef __x86_64__
#define TRAINER_WITH_FMA [[gnu::target("avx2,fma")]]
bool has_fma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
#define TRAINER_WITH_FMA
constexpr bool has_fma() { return true; }
#endif

// Converts the pixels at pixels, pixels + kStep, …
template <int kStep>
TRAINER_WITH_FMA void compute_row(const uint8_t* pixels, int count, const ChannelArithmetic& channel, float* __restrict out) {
  for (int x = 0; x < count; ++x) {
    const auto pixel = static_cast<float>(pixels[x * kStep]);
    const float centred = std::fma(pixel, kPixelScale.rounded, pixel * kPixelScale.rest) - channel.mean;
    out[x] = std::fma(centred, channel.inverse_std, centred * channel.inverse_std_rest);
  }
}

// Writes channels that are interleaved in the output. kChannels 0: as many as the image has. kInterleaved: the stored pixels are
// interleaved too; otherwise each channel is read from its own plane. `arithmetic`: null, or that of a single channel in a plane.
template <int kChannels, bool kInterleaved, class T>
class WindowWriter {
 public:
  WindowWriter(const ImageView& image, const uint8_t* pixels, const T* table, const ChannelArithmetic* arithmetic)
      : image_(image),
        pixels_(pixels),
        table_(table),
        arithmetic_(arithmetic),
        channels_(kChannels > 0 ? kChannels : image.channels),
        column_stride_(kInterleaved ? image.channels : 1),
        channel_stride_(kInterleaved ? 1 : static_cast<ptrdiff_t>(image.height) * image.width),
        plane_(static_cast<ptrdiff_t>(image.height) * image.width) {}

  void write(T* out) const {
    // The part of each output row that stored pixels fill; the columns before and after it are padding.
    const int inside_begin = std::clamp(-image_.left, 0, image_.window_width);
    const int inside_end = std::clamp(image_.width - image_.left, inside_begin, image_.window_width);
    const int begin = image_.mirrored ? image_.window_width - inside_end : inside_begin;
    const int end = image_.mirrored ? image_.window_width - inside_begin : inside_end;
    for (int y = 0; y < image_.window_height; ++y, out += static_cast<ptrdiff_t>(image_.window_width) * channels_) {
      const int source = source_index(source_row(y), image_.height, image_.padding);
      if (source == kOutside) {
        for (int x = 0; x < image_.window_width; ++x) write_zero(out + x * channels_);
        continue;
      }
      const ptrdiff_t row_offset = static_cast<ptrdiff_t>(source) * image_.width;
      const uint8_t* row = pixels_ + row_offset * column_stride_;
      // Vector code is faster on whole rows: read beyond the row's ends if that is inside the plane; the padding overwrites the excess.
      const ptrdiff_t seen = row_offset + image_.left;
      const bool whole = arithmetic_ != nullptr && seen >= 0 && seen + image_.window_width <= plane_;
      if (whole) {
        write_inside(row, 0, image_.window_width, out);
      } else {
        write_inside(row, begin, end, out);
      }
      write_padding(row, 0, begin, out);
      write_padding(row, end, image_.window_width, out);
    }
  }

 private:
  // The stored row for output row y; it may be outside the image.
  int source_row(int y) const { return image_.flipped ? image_.top + image_.window_height - 1 - y : image_.top + y; }
  // The stored column for output column x; it may be outside the image.
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
        look_up<1>(row + source * column_stride_, 1, out + x * channels_);
      }
    }
  }

  // Writes the window's columns begin to end, each from its source column.
  void write_inside(const uint8_t* row, int begin, int end, T* out) const {
    if (begin == end) return;
    const uint8_t* pixels = row + source_column(begin) * column_stride_;
    if constexpr (kChannels == 1 && !kInterleaved && std::is_same_v<T, float>) {
      if (arithmetic_ != nullptr) {
        image_.mirrored ? compute_row<-1>(pixels, end - begin, *arithmetic_, out + begin)
                        : compute_row<1>(pixels, end - begin, *arithmetic_, out + begin);
        return;
      }
    }
    image_.mirrored ? look_up<-1>(pixels, end - begin, out + begin * channels_) : look_up<1>(pixels, end - begin, out + begin * channels_);
  }

  // Unrolled by pragma: otherwise -O2 keeps the loop over channels, and -O3 builds vectors from single look-ups, which is slower.
  template <int kStep>
  void look_up(const uint8_t* pixels, int count, T* __restrict out) const {
    const int channels = kChannels > 0 ? kChannels : channels_;
    const T* __restrict table = table_;
    const ptrdiff_t column = kInterleaved && kChannels == 3 ? 3 : column_stride_;
    const ptrdiff_t channel = kInterleaved ? 1 : channel_stride_;
#pragma GCC unroll 2
    for (int x = 0; x < count; ++x) {
#pragma GCC unroll 3
      for (int c = 0; c < channels; ++c) out[x * channels + c] = table[c * kPixelValues + pixels[c * channel + x * kStep * column]];
    }
  }

  const ImageView& image_;
  const uint8_t* pixels_;
  const T* table_;
  const ChannelArithmetic* arithmetic_;
  int channels_;
  // Distances between the stored bytes of neighbouring columns and channels.
  ptrdiff_t column_stride_;
  ptrdiff_t channel_stride_;
  ptrdiff_t plane_;  // pixels of the stored image
};

// Pixels of one channel of the output.
ptrdiff_t written_plane(const ImageView& image) { return static_cast<ptrdiff_t>(image.window_height) * image.window_width; }

// Writes the window by arithmetic. Returns false, without a result, if that is not possible.
bool write_by_arithmetic(const ImageView& image, std::span<const ChannelArithmetic> arithmetic, bool channels_last, float* out) {
  const bool is_inside = image.top >= 0 && image.left >= 0 && image.top + image.window_height <= image.height &&
                         image.left + image.window_width <= image.width;
  if (image.channels != 3 || arithmetic.empty() || !is_inside) return false;
  const ptrdiff_t plane = channels_last ? 0 : written_plane(image);
  for (int y = 0; y < image.window_height; ++y, out += static_cast<ptrdiff_t>(image.window_width) * (channels_last ? 3 : 1)) {
    const int row = image.top + (image.flipped ? image.window_height - 1 - y : y);
    const uint8_t* pixels = image.pixels + 3 * (static_cast<ptrdiff_t>(row) * image.width + image.left);
    if (!normalise_pixels_of_three(pixels, image.window_width, image.mirrored, arithmetic.data(), plane, out)) return false;
  }
  return true;
}

template <class T>
void write_interleaved(const ImageView& image, std::span<const T> table, std::span<const ChannelArithmetic> arithmetic, bool channels_last,
                       T* out) {
  if constexpr (std::is_same_v<T, float>) {
    if (write_by_arithmetic(image, arithmetic, channels_last, out)) return;
  }
  if (channels_last && image.channels == 3) {
    WindowWriter<3, true, T>(image, image.pixels, table.data(), nullptr).write(out);
  } else if (channels_last) {
    WindowWriter<0, true, T>(image, image.pixels, table.data(), nullptr).write(out);
  } else {
    for (int c = 0; c < image.channels; ++c) {
      WindowWriter<1, true, T>(image, image.pixels + c, table.data() + c * kPixelValues, nullptr).write(out + c * written_plane(image));
    }
  }
}

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

std::vector<ChannelArithmetic> exact_arithmetic(std::span<const double> mean, std::span<const double> std) {
  if (!has_fma()) return {};
  std::array<uint8_t, kPixelValues> pixels{};
  std::iota(pixels.begin(), pixels.end(), uint8_t{0});
  std::array<float, kPixelValues> computed{};
  const auto table = make_pixel_table<float>(mean, std);
  std::vector<ChannelArithmetic> channels;
  for (size_t c = 0; c < mean.size(); ++c) {
    const Reciprocal inverse_std(static_cast<float>(std[c]));
    channels.push_back({static_cast<float>(mean[c]), inverse_std.rounded, inverse_std.rest});
    compute_row<1>(pixels.data(), kPixelValues, channels.back(), computed.data());
    if (std::memcmp(computed.data(), &table[c * kPixelValues], sizeof computed) != 0) return {};
  }
  return channels;
}

template <class T>
void write_image(const ImageView& image, std::span<const T> table, std::span<const ChannelArithmetic> arithmetic, bool channels_last,
                 T* out) {
  const bool interleaved = image.order == PixelOrder::kInterleaved && image.channels != 1;
  if (interleaved) {
    write_interleaved(image, table, arithmetic, channels_last, out);
  } else if (channels_last && image.channels == 3) {
    WindowWriter<3, false, T>(image, image.pixels, table.data(), nullptr).write(out);
  } else if (channels_last && image.channels != 1) {
    WindowWriter<0, false, T>(image, image.pixels, table.data(), nullptr).write(out);
  } else {
    const auto stored_plane = static_cast<ptrdiff_t>(image.height) * image.width;
    for (int c = 0; c < image.channels; ++c) {
      const auto* channel = arithmetic.empty() ? nullptr : &arithmetic[static_cast<size_t>(c)];
      WindowWriter<1, false, T>(image, image.pixels + c * stored_plane, table.data() + c * kPixelValues, channel)
          .write(out + c * written_plane(image));
    }
  }
}

template <class T>
void erase_box(const Box& box, int channels, int height, int width, bool channels_last, T* out) {
  const int num_planes = channels_last ? 1 : channels;
  const int values = channels / num_planes;  // of one pixel in a plane
  for (int plane = 0; plane < num_planes; ++plane) {
    for (int y = box.top; y < box.top + box.height; ++y) {
      std::fill_n(out + ((static_cast<ptrdiff_t>(plane) * height + y) * width + box.left) * values, box.width * values, T{});
    }
  }
}

template std::vector<float> make_pixel_table<float>(std::span<const double>, std::span<const double>);
template std::vector<double> make_pixel_table<double>(std::span<const double>, std::span<const double>);
template std::vector<uint16_t> make_pixel_table<uint16_t>(std::span<const double>, std::span<const double>);
template void write_image<float>(const ImageView&, std::span<const float>, std::span<const ChannelArithmetic>, bool, float*);
template void write_image<double>(const ImageView&, std::span<const double>, std::span<const ChannelArithmetic>, bool, double*);
template void write_image<uint8_t>(const ImageView&, std::span<const uint8_t>, std::span<const ChannelArithmetic>, bool, uint8_t*);
template void write_image<uint16_t>(const ImageView&, std::span<const uint16_t>, std::span<const ChannelArithmetic>, bool, uint16_t*);
template void erase_box<float>(const Box&, int, int, int, bool, float*);
template void erase_box<double>(const Box&, int, int, int, bool, double*);
template void erase_box<uint16_t>(const Box&, int, int, int, bool, uint16_t*);

}  // namespace trainer::input
