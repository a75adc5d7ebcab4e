#include "data/image_write.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>

#include "trainer/random.h"

namespace trainer::data {
namespace {

constexpr std::array kCifarMean = {0.4914, 0.4822, 0.4465};
constexpr std::array kCifarStd = {0.2470, 0.2435, 0.2616};

template <class T>
std::vector<T> write_window(const ImageView& image, const std::vector<T>& table, bool channels_last = false,
                            const std::vector<ChannelArithmetic>& arithmetic = {}) {
  constexpr auto kUntouched = static_cast<T>(12345);
  const auto count = static_cast<size_t>(image.channels * image.window_height * image.window_width);
  std::vector<T> out(count + 1, kUntouched);
  std::vector<uint8_t> memory;
  ImageWriter<T>::write(image, table, arithmetic, channels_last, memory, out.data());
  EXPECT_EQ(out.back(), kUntouched) << "written past the end";
  out.pop_back();
  return out;
}

// The reference implementation: looks up each value separately.
template <class T>
std::vector<T> reference_write(const ImageView& image, const std::vector<T>& table, bool channels_last) {
  const auto source = [&](int at, int size) {
    if (image.padding == Padding::kZero) return at >= 0 && at < size ? at : -1;
    return at < 0 ? -at : at >= size ? 2 * size - 2 - at : at;
  };
  std::vector<T> out(static_cast<size_t>(image.channels * image.window_height * image.window_width));
  for (int c = 0; c < image.channels; ++c) {
    for (int y = 0; y < image.window_height; ++y) {
      for (int x = 0; x < image.window_width; ++x) {
        const int row = source(image.top + (image.flipped ? image.window_height - 1 - y : y), image.height);
        const int column = source(image.left + (image.mirrored ? image.window_width - 1 - x : x), image.width);
        const int from = image.order == PixelOrder::kPlanar ? (c * image.height + row) * image.width + column
                                                            : (row * image.width + column) * image.channels + c;
        const int pixel = row < 0 || column < 0 ? 0 : image.pixels[from];
        const int to =
            channels_last ? (y * image.window_width + x) * image.channels + c : (c * image.window_height + y) * image.window_width + x;
        out[static_cast<size_t>(to)] = table[static_cast<size_t>(c * 256 + pixel)];
      }
    }
  }
  return out;
}

// A random number from `low` to `high`, both included.
int draw_between(CounterRandom& random, int low, int high) {
  return low + static_cast<int>(random.next_below(static_cast<uint32_t>(high - low + 1)));
}

// make_table(channels), make_arithmetic(channels): return arguments of ImageWriter::write().
template <class T>
void expect_reference_for_random_windows(const auto& make_table, const auto& make_arithmetic) {
  CounterRandom random(7, 0);
  for (int round = 0; round < 800; ++round) {
    const int channels = round % 4 < 2 ? 3 : draw_between(random, 1, 5);
    const int height = draw_between(random, 1, 12);
    const int width = draw_between(random, 1, round % 2 == 0 ? 12 : 70);
    std::vector<uint8_t> pixels(static_cast<size_t>(channels * height * width));
    for (auto& pixel : pixels) pixel = static_cast<uint8_t>(random.next_below(256));
    auto image =
        ImageView::whole(pixels.data(), channels, height, width, random.next_bool(0.5) ? PixelOrder::kPlanar : PixelOrder::kInterleaved);
    image.padding = random.next_bool(0.5) ? Padding::kZero : Padding::kReflect;
    image.mirrored = random.next_bool(0.5);
    image.flipped = random.next_bool(0.5);
    const bool reflects = image.padding == Padding::kReflect;
    const int above = reflects ? height - 1 : 20;
    const int before = reflects ? width - 1 : 20;
    image.top = draw_between(random, -above, height - 1 + above);
    image.left = draw_between(random, -before, width - 1 + before);
    image.window_height = draw_between(random, 1, height + above - image.top);
    image.window_width = draw_between(random, 1, width + before - image.left);
    const std::vector<T> table = make_table(static_cast<size_t>(channels));
    for (const bool channels_last : {false, true}) {
      ASSERT_EQ(write_window(image, table, channels_last, make_arithmetic(static_cast<size_t>(channels))),
                reference_write(image, table, channels_last))
          << channels << " x " << height << " x " << width << ", window " << image.window_height << " x " << image.window_width << " at "
          << image.top << ", " << image.left << ", mirrored " << image.mirrored << ", flipped " << image.flipped << ", reflected "
          << reflects << ", interleaved " << (image.order == PixelOrder::kInterleaved) << ", channels_last " << channels_last;
    }
  }
}

template <class T>
void expect_reference_for_distinct_values() {
  const auto table = [](size_t channels) {
    std::vector<T> values(channels * 256);
    std::iota(values.begin(), values.end(), T{1});
    return values;
  };
  expect_reference_for_random_windows<T>(table, [](size_t) { return std::vector<ChannelArithmetic>{}; });
}

TEST(ImageWrite, EqualsTheReferenceForRandomWindows) {
  expect_reference_for_distinct_values<float>();
  expect_reference_for_distinct_values<double>();
  expect_reference_for_distinct_values<uint16_t>();
}

template <class T>
void expect_that_arithmetic_equals_the_table() {
  constexpr std::array kMean = {0.4914, 0.4822, 0.4465, 0.0, 0.5};
  constexpr std::array kStd = {0.2470, 0.2435, 0.2616, 1.0, 0.1};
  if (exact_arithmetic(kMean, kStd).empty()) GTEST_SKIP() << "this processor has no fused multiply-add";
  expect_reference_for_random_windows<T>(
      [&](size_t channels) { return ImageWriter<T>::make_table(std::span(kMean).first(channels), std::span(kStd).first(channels)); },
      [&](size_t channels) { return exact_arithmetic(std::span(kMean).first(channels), std::span(kStd).first(channels)); });
}

TEST(ImageWrite, ArithmeticEqualsTheTable) { expect_that_arithmetic_equals_the_table<float>(); }
TEST(ImageWrite, ArithmeticOfBFloat16EqualsTheTable) { expect_that_arithmetic_equals_the_table<uint16_t>(); }

// Pixel 0 becomes -mean; these values are halfway between two bfloat16 numbers.
TEST(ImageWrite, ArithmeticOfBFloat16RoundsTiesToEven) {
  constexpr std::array kMean = {-(1.0 + 0x1p-8), -(1.0 + 3 * 0x1p-8), 1.0 + 0x1p-8};
  constexpr std::array kStd = {1.0, 1.0, 1.0};
  const auto arithmetic = exact_arithmetic(kMean, kStd);
  if (arithmetic.empty()) GTEST_SKIP() << "this processor has no fused multiply-add";
  const std::array<uint8_t, 3> pixels{};
  const auto table = std::vector<uint16_t>(3 * 256);
  EXPECT_EQ(write_window(ImageView::whole(pixels.data(), 3, 1, 1), table, true, arithmetic),
            (std::vector<uint16_t>{0x3F80, 0x3F82, 0xBF80}));
}

TEST(ImageWrite, ArithmeticThatWouldRoundDifferentlyIsNotUsed) {
  // The low part of the reciprocal underflows in float.
  constexpr std::array kMean = {0.5};
  constexpr std::array kStd = {3e37};
  EXPECT_TRUE(exact_arithmetic(kMean, kStd).empty());
}

TEST(ImageWrite, ReflectsWithoutRepeatingTheEdge) {
  const std::array<uint8_t, 4> pixels = {1, 2, 3, 4};
  auto image = ImageView::whole(pixels.data(), 1, 1, 4);
  image.padding = Padding::kReflect;
  image.left = -2;
  image.window_width = 8;
  std::vector<float> table(256);
  std::iota(table.begin(), table.end(), 0.0F);
  EXPECT_EQ(write_window(image, table), (std::vector<float>{3, 2, 1, 2, 3, 4, 3, 2}));
}

TEST(ImageWrite, WindowOutsideTheImageIsAllZeroPixels) {
  const std::vector<uint8_t> pixels(3 * 4 * 4, 200);
  auto image = ImageView::whole(pixels.data(), 3, 4, 4);
  const auto table = ImageWriter<float>::make_table(kCifarMean, kCifarStd);
  const std::vector<float> black = {table[0], table[256], table[512]};
  image.window_height = 1;
  image.window_width = 1;
  for (const auto& [top, left] : {std::pair(-30, 0), {4, 0}, {0, -1}, {0, 9}}) {
    image.top = top;
    image.left = left;
    EXPECT_EQ(write_window(image, table), black);
    EXPECT_EQ(write_window(image, table, true), black);
  }
}

uint64_t fnv1a(const std::vector<float>& values) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const float value : values) {
    for (const auto byte : std::bit_cast<std::array<uint8_t, sizeof value>>(value)) hash = (hash ^ byte) * 0x100000001B3U;
  }
  return hash;
}

TEST(ImageWrite, EqualsTorchvisionBitForBit) {
  constexpr int kSize = 16;  // the images of tests/golden/make_transforms.py
  std::array<std::vector<uint8_t>, 2> images;
  for (int number = 0; number < 2; ++number) {
    for (int c = 0; c < 3; ++c) {
      for (int i = 0; i < kSize * kSize; ++i) {
        images.at(static_cast<size_t>(number)).push_back(static_cast<uint8_t>((i * (37 + 2 * number) + 101 * c) % 256));
      }
    }
  }
  const auto table = ImageWriter<float>::make_table(kCifarMean, kCifarStd);
  const auto arithmetic = exact_arithmetic(kCifarMean, kCifarStd);
  std::ifstream golden(TRAINER_SOURCE_DIR "/tests/golden/transforms.txt");
  size_t number = 0;
  std::string mode;
  std::string expected;
  int padding = 0;
  int top = 0;
  int left = 0;
  int size = 0;
  int cases = 0;
  for (bool flipped = false; golden >> number >> mode >> padding >> top >> left >> size >> flipped >> expected; ++cases) {
    auto image = ImageView::whole(images.at(number).data(), 3, kSize, kSize);
    image.padding = mode == "reflect" ? Padding::kReflect : Padding::kZero;
    image.top = top - padding;
    image.left = left - padding;
    image.window_height = image.window_width = size;
    image.mirrored = flipped;
    EXPECT_EQ(fnv1a(write_window(image, table)), std::stoull(expected, nullptr, 16)) << "line " << cases + 1;
    EXPECT_EQ(fnv1a(write_window(image, table, false, arithmetic)), std::stoull(expected, nullptr, 16)) << "line " << cases + 1;
  }
  EXPECT_EQ(cases, 72);
}

TEST(PixelTable, WithoutNormalisationValuesArePixelOver255) {
  const std::array zero = {0.0};
  const std::array one = {1.0};
  const auto single = ImageWriter<float>::make_table(zero, one);
  const auto exact = ImageWriter<double>::make_table(zero, one);
  for (size_t pixel = 0; pixel < 256; ++pixel) {
    EXPECT_EQ(single[pixel], static_cast<float>(pixel) / 255.0F);
    EXPECT_EQ(exact[pixel], static_cast<double>(pixel) / 255.0);
  }
}

TEST(PixelTable, EachTypeIsComputedInItsOwnPrecision) {
  const auto single = ImageWriter<float>::make_table(kCifarMean, kCifarStd);
  const auto exact = ImageWriter<double>::make_table(kCifarMean, kCifarStd);
  int different = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(exact[i], (static_cast<double>(i % 256) / 255.0 - kCifarMean.at(i / 256)) / kCifarStd.at(i / 256));
    EXPECT_NEAR(single[i], exact[i], 1e-6);
    if (single[i] != static_cast<float>(exact[i])) ++different;
  }
  EXPECT_GT(different, 0);
}

TEST(PixelTable, BFloat16IsRoundedToNearestEven) {
  const auto single = ImageWriter<float>::make_table(kCifarMean, kCifarStd);
  const auto half = ImageWriter<uint16_t>::make_table(kCifarMean, kCifarStd);
  for (size_t i = 0; i < single.size(); ++i) {
    const auto below = std::bit_cast<uint32_t>(single[i]) & 0xFFFF0000U;  // towards zero
    const double low = std::bit_cast<float>(below);
    const double high = std::bit_cast<float>(below + 0x10000U);
    const double to_low = std::abs(single[i] - low);
    const double to_high = std::abs(high - single[i]);
    const bool low_is_even = (below >> 16) % 2 == 0;
    const bool takes_low = to_low < to_high || (to_low == to_high && low_is_even);
    EXPECT_EQ(half[i], (below >> 16) + (takes_low ? 0 : 1)) << single[i];
  }
}

// Pixel 0 becomes -mean / std; these values are halfway between two bfloat16 numbers.
TEST(PixelTable, BFloat16TiesRoundToEven) {
  const std::array means = {-(1.0 + 0x1p-8), -(1.0 + 3 * 0x1p-8), 1.0 + 0x1p-8};
  const std::array ones = {1.0, 1.0, 1.0};
  const auto half = ImageWriter<uint16_t>::make_table(means, ones);
  EXPECT_EQ(half[0], 0x3F80);    // 1 + 2^-8 -> 1
  EXPECT_EQ(half[256], 0x3F82);  // 1 + 3 * 2^-8 -> 1 + 2^-6
  EXPECT_EQ(half[512], 0xBF80);
}

}  // namespace
}  // namespace trainer::data
