#pragma once
// The one loop from stored pixels to the network's input: window, padding, mirroring, normalisation, element type and memory order
// in a single pass. The element types are float, double and uint16_t, which stands for the bits of a bfloat16.

#include <cstdint>
#include <span>
#include <vector>

#include "input/image.h"

namespace trainer::input {

// The normalized value of each of the 256 pixel values of each channel, [channels][256]: (pixel / 255 - mean) / std, computed like
// torchvision's ToTensor and Normalize: in float with mean and std rounded to float, or in double. bfloat16 is the float value rounded to
// nearest even. `mean` and `std` hold one value for each channel.
template <class T>
std::vector<T> make_pixel_table(std::span<const double> mean, std::span<const double> std);

// (pixel / 255 - mean) / std of one channel by multiplications with reciprocals, each in two parts: the first, rounded to
// float, and the rest that the rounding cut off.
struct ChannelArithmetic {
  float mean;
  float inverse_std, inverse_std_rest;
};

// For each channel, the arithmetic that computes the values of make_pixel_table<float>(mean, std) bit for bit; all 256 values are
// compared. Empty if one differs or the processor has no fused multiply-add; then only the table is used.
std::vector<ChannelArithmetic> exact_arithmetic(std::span<const double> mean, std::span<const double> std);

// Writes the image's window to `out`, which has room for channels * window_height * window_width elements: as
// [channels][height][width], or with `channels_last` as [height][width][channels]. Zero padding writes the normalized pixel
// value 0; with reflection the window must extend beyond an edge by less than the stored height or width. `table` has 256 values for each
// channel; `arithmetic`, empty or one for each channel, gives the same values faster if the channels are not interleaved.
template <class T>
void write_image(const ImageView& image, std::span<const T> table, std::span<const ChannelArithmetic> arithmetic, bool channels_last,
                 T* out);

}  // namespace trainer::input
