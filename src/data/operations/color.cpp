// Sources in Pillow: src/PIL/ImageEnhance.py and ImageOps.py, src/libImaging/Blend.c and Convert.c. Expressions use the same types as
// there, because the types determine the rounding.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "data/avx2.h"
#include "data/operations/operations.h"

namespace trainer::data {
namespace {

uint8_t grey_of(const uint8_t* rgb) { return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16); }

// The mean of the grey image, rounded like ImageEnhance.Contrast.
int grey_mean(const PixelArray& pixels) {
  uint64_t sum = 0;
  const auto count = pixels.num_pixels();
  for (size_t i = 0; i < count; ++i) sum += pixels.channels == 3 ? grey_of(pixels.data + 3 * i) : pixels.data[i];
  return static_cast<int>(static_cast<double>(sum) / static_cast<double>(count) + 0.5);
}

template <class Function>
ByteTable make_table(Function value_of) {
  ByteTable table;
  for (int value = 0; value < 256; ++value) table[static_cast<size_t>(value)] = static_cast<uint8_t>(value_of(value));
  return table;
}

// The blend of the value `degenerate` with each pixel value.
ByteTable blend_table(int degenerate, float factor) {
  return make_table([=](int value) { return blend(degenerate, value, factor); });
}

TRAINER_FOR_AVX2_TOO void blend_all(const uint8_t* __restrict from, size_t count, float factor, uint8_t* __restrict to) {
  for (size_t i = 0; i < count; ++i) to[i] = blend(from[i], to[i], factor);
}

struct Hsv {
  uint8_t hue;
  uint8_t saturation;
  uint8_t value;
};

uint8_t scaled_to_byte(float part) { return static_cast<uint8_t>(std::clamp(static_cast<int>(part * 255.0), 0, 255)); }

// Like rgb2hsv_row() in Convert.c.
Hsv to_hsv(const uint8_t* rgb) {
  const uint8_t most = std::max(rgb[0], std::max(rgb[1], rgb[2]));
  const uint8_t least = std::min(rgb[0], std::min(rgb[1], rgb[2]));
  if (most == least) return {0, 0, most};
  const auto chroma = static_cast<float>(most - least);
  const float saturation = chroma / static_cast<float>(most);
  const float red = static_cast<float>(most - rgb[0]) / chroma;
  const float green = static_cast<float>(most - rgb[1]) / chroma;
  const float blue = static_cast<float>(most - rgb[2]) / chroma;
  float hue = 0;
  if (rgb[0] == most) {
    hue = blue - green;
  } else if (rgb[1] == most) {
    hue = static_cast<float>(2.0 + red - blue);
  } else {
    hue = static_cast<float>(4.0 + green - red);
  }
  const double turned = hue / 6.0 + 1.0;  // from 5/6 to less than 2, so this is fmod(turned, 1)
  hue = static_cast<float>(turned >= 1.0 ? turned - 1.0 : turned);
  return {scaled_to_byte(hue), scaled_to_byte(saturation), most};
}

// `value` is 0 to 255. Equals round() for all hues, saturations and values, but is faster.
uint8_t rounded_to_byte(double value) { return static_cast<uint8_t>(static_cast<int>(value + 0.5)); }

// Like hsv2rgb() in Convert.c.
void write_rgb(const Hsv& hsv, uint8_t* rgb) {
  if (hsv.saturation == 0) {
    std::memset(rgb, hsv.value, 3);
    return;
  }
  const double sixths = static_cast<float>(hsv.hue) * 6.0 / 255.0;
  const int sector = static_cast<int>(sixths);
  const auto rest = static_cast<float>(sixths - static_cast<double>(static_cast<float>(sector)));
  const auto saturation = static_cast<float>(hsv.saturation / 255.0);
  const auto value = static_cast<double>(hsv.value);
  const uint8_t v = hsv.value;
  const uint8_t p = rounded_to_byte(value * (1.0 - saturation));
  const uint8_t q = rounded_to_byte(value * (1.0 - saturation * rest));
  const uint8_t t = rounded_to_byte(value * (1.0 - saturation * (1.0 - rest)));
  const std::array<std::array<uint8_t, 3>, 6> sectors = {{{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  std::memcpy(rgb, sectors[static_cast<size_t>(sector % 6)].data(), 3);
}

using Histogram = std::array<int64_t, 256>;

// Applies to each channel the table that `table_of` computes from its histogram.
template <class Function>
void apply_tables(const PixelArray& pixels, Function table_of) {
  const auto step = static_cast<size_t>(pixels.channels);
  for (size_t c = 0; c < step; ++c) {
    Histogram histogram{};
    for (size_t i = c; i < pixels.num_bytes(); i += step) ++histogram[pixels.data[i]];
    const ByteTable table = table_of(histogram);
    for (size_t i = c; i < pixels.num_bytes(); i += step) pixels.data[i] = table[pixels.data[i]];
  }
}

int identity(int value) { return value; }

ByteTable autocontrast_table(const Histogram& histogram) {
  const auto is_seen = [](int64_t count) { return count > 0; };
  const auto least = std::find_if(histogram.begin(), histogram.end(), is_seen) - histogram.begin();
  const auto greatest = histogram.rend() - std::find_if(histogram.rbegin(), histogram.rend(), is_seen) - 1;
  if (greatest <= least) return make_table(identity);
  const double scale = 255.0 / static_cast<double>(greatest - least);
  const double offset = static_cast<double>(-least) * scale;
  return make_table([=](int value) { return std::clamp(static_cast<int>(value * scale + offset), 0, 255); });
}

ByteTable equalize_table(const Histogram& histogram) {
  const int64_t sum = std::accumulate(histogram.begin(), histogram.end(), int64_t{0});
  const auto last = std::find_if(histogram.rbegin(), histogram.rend(), [](int64_t count) { return count > 0; });
  const int64_t step = (sum - *last) / 255;
  if (step == 0) return make_table(identity);
  int64_t number = step / 2;
  return make_table([&](int value) {
    const int64_t rank = number / step;
    number += histogram[static_cast<size_t>(value)];
    return std::min<int64_t>(rank, 255);
  });
}

}  // namespace

void to_grayscale(const PixelArray& pixels) {
  if (pixels.channels == 1) return;
  for (size_t i = 0; i < pixels.num_pixels(); ++i) std::memset(pixels.data + 3 * i, grey_of(pixels.data + 3 * i), 3);
}

void adjust_brightness(const PixelArray& pixels, float factor) { apply_table(pixels, blend_table(0, factor)); }

void adjust_contrast(const PixelArray& pixels, float factor) { apply_table(pixels, blend_table(grey_mean(pixels), factor)); }

void adjust_saturation(const PixelArray& pixels, float factor) {
  if (pixels.channels == 1) return;
  constexpr size_t kBlock = 256;
  std::array<uint8_t, 3 * kBlock> grey;
  for (size_t begin = 0; begin < pixels.num_pixels(); begin += kBlock) {
    const size_t count = std::min(kBlock, pixels.num_pixels() - begin);
    uint8_t* rgb = pixels.data + 3 * begin;
    for (size_t i = 0; i < count; ++i) std::memset(&grey[3 * i], grey_of(rgb + 3 * i), 3);
    blend_all(grey.data(), 3 * count, factor, rgb);
  }
}

void adjust_hue(const PixelArray& pixels, double shift) {
  if (pixels.channels == 1) return;
  const int byte_shift = static_cast<int>(shift * 255);
  for (size_t i = 0; i < pixels.num_pixels(); ++i) {
    uint8_t* rgb = pixels.data + 3 * i;
    auto hsv = to_hsv(rgb);
    hsv.hue = static_cast<uint8_t>(hsv.hue + byte_shift);
    write_rgb(hsv, rgb);
  }
}

void posterize(const PixelArray& pixels, int bits) {
  const int mask = ~((1 << (8 - bits)) - 1);
  apply_table(pixels, make_table([=](int value) { return value & mask; }));
}

void solarize(const PixelArray& pixels, double threshold) {
  apply_table(pixels, make_table([=](int value) { return value < threshold ? value : 255 - value; }));
}

void invert(const PixelArray& pixels) {
  apply_table(pixels, make_table([](int value) { return 255 - value; }));
}

void autocontrast(const PixelArray& pixels) { apply_tables(pixels, autocontrast_table); }

void equalize(const PixelArray& pixels) { apply_tables(pixels, equalize_table); }

}  // namespace trainer::data
