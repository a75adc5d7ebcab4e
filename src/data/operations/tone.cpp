// Source: src/PIL/ImageOps.py of Pillow.

#include "data/operations/tone.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "data/operations/table.h"

namespace trainer::data {
namespace {

using Histogram = std::array<int64_t, 256>;

template <class Function>
ByteTable make_table(Function value_of) {
  ByteTable table;
  for (int value = 0; value < 256; ++value) table[static_cast<size_t>(value)] = static_cast<uint8_t>(value_of(value));
  return table;
}

// Applies to each channel the table that `table_of` makes of its histogram.
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
