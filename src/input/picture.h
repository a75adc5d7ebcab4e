#pragma once
// An image while transforms are applied to it. Crops and mirroring move a window, and decoding and a resize are delayed until the pixels
// are needed, so that only those are computed that a later crop keeps. Operations on the values of pixels work on a copy, which they share.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "input/image.h"
#include "input/operations/filter.h"
#include "input/operations/pixel_array.h"
#include "input/resample.h"

namespace trainer::input {

// Buffers that grow as needed and are reused from picture to picture; one for each thread.
struct PictureMemory {
  std::vector<uint8_t> decoded;                // of an image file
  std::array<std::vector<uint8_t>, 2> pixels;  // the last results of computations
  std::size_t next = 0;                        // of `pixels`, to be written
  std::vector<uint8_t> rows;                   // of write_image()
  ResampleMemory resample;
  BlurMemory blur;
};

class Picture {
 public:
  // Both must outlive it. The views it gives are valid until the memory is used for another picture.
  Picture(const ImageView& image, PictureMemory& memory) : view_(image), memory_(memory) {}
  // An image file, which is decoded as far as its pixels are needed. Throws as decode_image(), as all functions that need pixels.
  Picture(std::span<const uint8_t> file, PictureMemory& memory);

  int channels() const { return view_.channels; }
  int height() const { return view_.window_height; }
  int width() const { return view_.window_width; }

  // Keeps height x width pixels, the first of them at (top, left), which may lie outside; `padding` defines the pixels there. Reflection
  // must reach beyond an edge by less than the picture's height or width.
  void crop(int top, int left, int height, int width, Padding padding = Padding::kZero);
  // Left for right.
  void mirror() { view_.mirrored = !view_.mirrored; }
  // Top for bottom.
  void flip() { view_.flipped = !view_.flipped; }
  // Antialiased and bilinear, as input/resample.h.
  void resize(int height, int width);
  // The picture, once everything that was delayed is computed.
  const ImageView& view();

  // The picture in memory that may be written. Copies it unless an earlier computation has left it there. The pointer is valid until the
  // next call but replace_pixels().
  PixelArray pixels();
  // Room for the result of an operation that cannot write its input, which pixels() has given and which stays readable until the next
  // call; the result is the picture from now on.
  uint8_t* replace_pixels();
  BlurMemory& blur_memory() { return memory_.blur; }

 private:
  // Whether the window is the stored image.
  bool is_whole() const;
  // Whether the window shows nothing but stored pixels.
  bool is_inside() const;
  // The part of the image that the window shows, or could show by reflection.
  Box visible_part() const;
  // Gives `image` pixels, of which `part` are needed, if it still is a file.
  void decode(ImageView& image, const Box& part);
  uint8_t* allocate(int height, int width);
  // Makes the window the whole image, in memory of its own.
  void copy_window();

  std::span<const uint8_t> file_;  // what view_, or resized_ while a resize is delayed, is still to be decoded from; empty: it has pixels
  ImageView view_;                 // without pixels while a resize is delayed
  ImageView resized_;              // what is still to be resized to the size of view_
  bool is_delayed_ = false;
  uint8_t* owned_ = nullptr;  // the last memory that was allocated
  PictureMemory& memory_;
};

}  // namespace trainer::input
