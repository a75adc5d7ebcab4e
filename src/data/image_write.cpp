#include "data/image_write.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "data/window_copy.h"
#include "data/write_kernels.h"

namespace trainer::data {
namespace {

constexpr int kPixelValues = 256;
// Rows are processed in groups of about this size, so that their pixels stay in the L1 cache between copying and normalisation.
constexpr ptrdiff_t kBytesAtOnce = 8192;

template <class Real>
Real normalised(int pixel, double mean, double std) {
  return (static_cast<Real>(pixel) / Real{255} - static_cast<Real>(mean)) / static_cast<Real>(std);
}

uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t round_half_to_even = 0x7FFFU + ((bits >> 16) & 1U);
  return static_cast<uint16_t>((bits + round_half_to_even) >> 16);
}

// Normalises `count` values: the pixels of one channel, or of interleaved channels if the table has several.
template <class T>
void normalise_pixels(const uint8_t* pixels, ptrdiff_t count, std::span<const T> table, std::span<const ChannelArithmetic> arithmetic,
                      T* out) {
  const auto channels = static_cast<ptrdiff_t>(table.size() / kPixelValues);
  if constexpr (!std::is_same_v<T, double>) {
    const bool is_possible = arithmetic.size() == 1 || arithmetic.size() == 3;
    if (is_possible && normalise(pixels, count, arithmetic, out)) return;
  }
  for (ptrdiff_t i = 0; i < count; i += channels) {
    for (ptrdiff_t c = 0; c < channels; ++c) out[i + c] = table[static_cast<size_t>(c * kPixelValues + pixels[i + c])];
  }
}

}  // namespace

template <class T>
std::vector<T> ImageWriter<T>::make_table(std::span<const double> mean, std::span<const double> std) {
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
  std::array<uint8_t, kPixelValues> pixels{};
  std::iota(pixels.begin(), pixels.end(), uint8_t{0});
  std::array<float, kPixelValues> computed{};
  const auto table = ImageWriter<float>::make_table(mean, std);
  std::vector<ChannelArithmetic> channels;
  for (size_t c = 0; c < mean.size(); ++c) {
    const auto inverse_std = 1 / static_cast<double>(static_cast<float>(std[c]));
    const auto rounded = static_cast<float>(inverse_std);
    channels.push_back({static_cast<float>(mean[c]), rounded, static_cast<float>(inverse_std - static_cast<double>(rounded))});
    if (!normalise(pixels.data(), kPixelValues, std::span(channels).last(1), computed.data())) return {};
    if (std::memcmp(computed.data(), &table[c * kPixelValues], sizeof computed) != 0) return {};
  }
  return channels;
}

template <class T>
void ImageWriter<T>::write(const ImageView& image, std::span<const T> table, std::span<const ChannelArithmetic> arithmetic,
                           bool channels_last, std::vector<uint8_t>& memory, T* out) {
  const ptrdiff_t width = image.window_width;
  const ptrdiff_t row = width * image.channels;
  const auto rows_at_once = static_cast<int>(std::clamp<ptrdiff_t>(kBytesAtOnce / row, 1, image.window_height));
  memory.resize(static_cast<size_t>(rows_at_once * row) + kReadBehind);
  for (int y = 0; y < image.window_height; y += rows_at_once) {
    const int end = std::min(y + rows_at_once, image.window_height);
    copy_rows(image, y, end, channels_last ? PixelOrder::kInterleaved : PixelOrder::kPlanar, memory.data());
    if (channels_last) {
      normalise_pixels(memory.data(), (end - y) * row, table, arithmetic, out + y * row);
      continue;
    }
    const ptrdiff_t count = (end - y) * width;
    for (int c = 0; c < image.channels; ++c) {
      const auto channel = static_cast<size_t>(c);
      normalise_pixels(memory.data() + c * count, count, table.subspan(channel * kPixelValues, kPixelValues),
                       arithmetic.empty() ? arithmetic : arithmetic.subspan(channel, 1), out + (c * image.window_height + y) * width);
    }
  }
}

template <class T>
void ImageWriter<T>::write_values(const ImageView& image, std::span<const double> mean, std::span<const double> std, bool channels_last,
                                  std::vector<float>& memory, T* out) {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto channels = static_cast<size_t>(image.channels);
  const auto num_pixels = static_cast<size_t>(image.window_height) * static_cast<size_t>(image.window_width);
  memory.resize(num_pixels * channels);
  copy_values(image, memory.data());
  const Real maximum = image.maximum > 0 ? static_cast<Real>(image.maximum) : Real{1};
  for (size_t i = 0; i < num_pixels; ++i) {
    for (size_t c = 0; c < channels; ++c) {
      const Real value = (static_cast<Real>(memory[i * channels + c]) / maximum - static_cast<Real>(mean[c])) / static_cast<Real>(std[c]);
      auto& written = out[channels_last ? i * channels + c : c * num_pixels + i];
      if constexpr (std::is_same_v<T, uint16_t>) {
        written = bfloat16_bits(value);
      } else {
        written = value;
      }
    }
  }
}

template <class T>
void ImageWriter<T>::erase(const Box& box, int channels, int height, int width, bool channels_last, T* out) {
  const int num_planes = channels_last ? 1 : channels;
  const int values = channels / num_planes;  // number of values per pixel in a plane
  for (int plane = 0; plane < num_planes; ++plane) {
    for (int y = box.top; y < box.top + box.height; ++y) {
      std::fill_n(out + ((static_cast<ptrdiff_t>(plane) * height + y) * width + box.left) * values, box.width * values, T{});
    }
  }
}

template struct ImageWriter<float>;
template struct ImageWriter<double>;
template struct ImageWriter<uint16_t>;

}  // namespace trainer::data
