#pragma once
// Converts stored pixels to the network's input: window, padding, mirroring, normalisation, element type and memory order.

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/dataset.h"

namespace trainer::data {

// The constants for computing (pixel / 255 - mean) / std of one channel by multiplication with reciprocals. A reciprocal has two parts: its
// value rounded to float, and the rounding error (`_rest`).
struct ChannelArithmetic {
  float mean;
  float inverse_std, inverse_std_rest;
};

// Returns the arithmetic of each channel if its results are bitwise equal to ImageWriter<float>::make_table(mean, std); all 256 values are
// compared. Returns an empty vector if any value differs or the processor has no fused multiply-add; then only the table is used.
std::vector<ChannelArithmetic> exact_arithmetic(std::span<const double> mean, std::span<const double> std);

// T: float, double, or uint16_t for the bits of bfloat16.
template <class T>
struct ImageWriter {
  // Returns the output for each of the 256 pixel values of each channel, [channels][256]: (pixel / 255 - mean) / std, computed like
  // torchvision's ToTensor and Normalize. Outputs of type double are computed in double, others in float, with mean and std rounded to
  // float; bfloat16 is the float value rounded to nearest even. `mean` and `std` have one value per channel.
  static std::vector<T> make_table(std::span<const double> mean, std::span<const double> std);

  // Writes the image's window to `out`, [channels][height][width], or with `channels_last` [height][width][channels]. Zero padding writes
  // the output of ImageView::fill; with reflection, the window must extend beyond an edge by less than the stored height or width.
  // `arithmetic` is empty or has one entry per channel; it gives the same values as the table faster, for float and bfloat16. `memory` is
  // reused between calls.
  static void write(const ImageView& image, std::span<const T> table, std::span<const ChannelArithmetic> arithmetic, bool channels_last,
                    std::vector<uint8_t>& memory, T* out);
  // The same for an image with values: (value / maximum - mean) / std, without the division if the values have no maximum.
  static void write_values(const ImageView& image, std::span<const double> mean, std::span<const double> std, bool channels_last,
                           std::vector<float>& memory, T* out);
  // Sets the part `box` of what was written to 0.
  static void erase(const Box& box, int channels, int height, int width, bool channels_last, T* out);
};

}  // namespace trainer::data
