#pragma once
// Transforms of images: the image that they change, their random numbers, and their interface. This header needs no LibTorch.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "trainer/dataset.h"
#include "trainer/random.h"

namespace trainer::data {

struct BlurMemory;
struct PictureMemory;

// [height][width][channels]
struct PixelArray {
  uint8_t* data = nullptr;
  int channels = 0;
  int height = 0;
  int width = 0;

  size_t num_pixels() const { return static_cast<size_t>(height) * static_cast<size_t>(width); }
  size_t num_bytes() const { return num_pixels() * static_cast<size_t>(channels); }
};

// An image while transforms are applied to it. Crops and mirroring move a window, and decoding and a resize are delayed until the pixels
// are needed, so that only those are computed that a later crop keeps. Operations on the values of pixels work on a copy, which they share.
class Picture {
 public:
  // Both must outlive it. The views it gives are valid until the memory is used for another picture.
  Picture(const ImageView& image, PictureMemory& memory) : view_(image), has_values_(image.values != nullptr), memory_(memory) {}
  // An image file, which is decoded as far as its pixels are needed. Throws as decode_image(), as all functions that need pixels.
  Picture(std::span<const uint8_t> file, PictureMemory& memory, const ImageDecoding& decoding = {});

  int channels() const { return view_.channels; }
  int height() const { return view_.window_height; }
  int width() const { return view_.window_width; }

  // Keeps height x width pixels, the first of them at (top, left), which may lie outside; `padding` defines the pixels there. Reflection
  // must reach beyond an edge by less than the picture's height or width.
  void crop(int top, int left, int height, int width, Padding padding = Padding::kZero);
  // Left for right.
  void mirror();
  // Top for bottom.
  void flip();
  // As data/resample.h.
  void resize(int height, int width, Interpolation interpolation = Interpolation::kBilinear);
  // The picture, once everything that was delayed is computed.
  const ImageView& view();
  // The labels of the picture's pixels, which the functions above move with the pixels, a resize to the nearest pixel as Pillow's; nullptr:
  // the data set has no masks. Where the view's window extends beyond the stored labels, there is no class.
  const ImageView* mask() { return mask_ == nullptr ? nullptr : &mask_->view(); }

  // The picture in memory that may be written, of 8 bits. Copies it unless an earlier computation has left it there. The pointer is valid
  // until the next call but replace_pixels().
  PixelArray pixels();
  // Room for the result of an operation that cannot write its input, which pixels() has given and which stays readable until the next
  // call; the result is the picture from now on.
  uint8_t* replace_pixels();
  // For the program.
  BlurMemory& blur_memory();
  // For the program: an image of other than 8 bits becomes one of 8, whose least value is 0 and whose greatest is 255, for people to see.
  void make_visible();
  // For the program: `mask`, of the same size, becomes the mask of this picture, and must outlive it.
  void set_mask(Picture& mask);

 private:
  void resize_to_nearest(int height, int width);
  // Whether the window is the stored image.
  bool is_whole() const;
  // Whether the window shows nothing but stored pixels.
  bool is_inside() const;
  // The part of the image that the window shows, or could show by reflection.
  Box visible_part() const;
  // Gives `image` pixels, of which `part` are needed, if it still is a file.
  void decode(ImageView& image, const Box& part);
  uint8_t* allocate(int height, int width);
  float* allocate_values(int height, int width);
  // Makes the window the whole image, in memory of its own.
  void copy_window();

  std::span<const uint8_t> file_;  // what view_, or resized_ while a resize is delayed, is still to be decoded from; empty: it has pixels
  ImageView view_;                 // without pixels while a resize is delayed
  ImageView resized_;              // what is still to be resized to the size of view_
  Interpolation interpolation_ = Interpolation::kBilinear;  // of that
  bool is_delayed_ = false;
  bool has_values_ = false;      // in place of pixels
  ImageDecoding decoding_ = {};  // of file_
  uint8_t* owned_ = nullptr;     // the last memory that was allocated for pixels
  PictureMemory& memory_;
  Picture* mask_ = nullptr;
  bool is_mask_ = false;
};

// A sample of an epoch.
struct EpochSample {
  int64_t index = 0;        // in the data set
  uint32_t occurrence = 0;  // how often it came earlier in the order of the epoch, so that it is augmented differently each time
};

// Keeps windows far from the limits of int.
inline constexpr double kMaxPixels = 32768;

// The size of every image at one position in the list of transforms.
struct Frame {
  int height = 0;
  int width = 0;
  bool is_exact = true;  // false: the images have different sizes, of at least height x width
};
std::string to_string(const Frame& frame);  // "32 x 24 pixels", "at least 32 x 24 pixels"

// The seeds of all samples' random numbers in one epoch.
struct EpochSeeds {
  EpochSeeds(uint64_t seed, int64_t number)
      : epoch(number),
        of_epoch(mix_seed(seed, static_cast<uint64_t>(number))),
        of_all_epochs(mix_seed(seed, std::numeric_limits<uint64_t>::max())) {}

  int64_t epoch;
  uint64_t of_epoch;
  uint64_t of_all_epochs;  // the same in each epoch
};

// The random numbers of a sample in its epoch, and those that it has in all epochs alike.
class SampleRandom : public CounterRandom {
 public:
  // `seeds` must outlive it.
  SampleRandom(const EpochSeeds& seeds, const EpochSample& which)
      : CounterRandom(seeds.of_epoch, static_cast<uint64_t>(which.index), which.occurrence), seeds_(seeds), which_(which) {}

  int64_t epoch() const {
    is_asked_for_epoch_ = true;
    return seeds_.epoch;
  }
  // Uniform in [low, high).
  double next_between(double low, double high) { return low + (high - low) * (next_uint32() * 0x1.0p-32); }
  CounterRandom& of_all_epochs() {
    if (!of_all_epochs_) of_all_epochs_.emplace(seeds_.of_all_epochs, static_cast<uint64_t>(which_.index), which_.occurrence);
    return *of_all_epochs_;
  }
  // Whether anything that may differ between epochs or samples was asked for.
  bool is_used() const { return CounterRandom::is_used() || of_all_epochs_ || is_asked_for_epoch_; }

 private:
  const EpochSeeds& seeds_;
  EpochSample which_;
  std::optional<CounterRandom> of_all_epochs_;  // made when a transform asks for it, because few do
  mutable bool is_asked_for_epoch_ = false;
};

// The keys of a transform, and the transform itself. Several threads call apply() concurrently.
class ImageTransform {
 public:
  // The frame after this transform. Throws UsageError when it cannot be applied to `frame`.
  virtual Frame plan(Frame frame) const = 0;
  // What is hardly meant so, though it can be applied to `frame`; empty: nothing.
  virtual std::string warning(const Frame& /*frame*/) const { return ""; }
  // Whether it needs images with 1 or 3 channels, which are grey values or red, green and blue.
  virtual bool uses_color() const { return false; }
  // Whether it uses an image only by the functions of Picture that do not need 8 bits, so that it fits those of 16 bits and of numbers too.
  virtual bool fits_all_depths() const { return false; }
  // Whether it moves pixels otherwise than by functions of Picture, so that a mask would not fit the image any more.
  virtual bool moves_pixels() const { return false; }
  virtual void apply(Picture& picture, SampleRandom& random) const = 0;
};

// The keys of a transform that sets part of the network's input to 0, and the transform itself. As above, draw_box() is called
// concurrently.
class ErasingTransform {
 public:
  // The part to be erased of an image of that size; it may be empty.
  virtual Box draw_box(int height, int width, SampleRandom& random) const = 0;
};

// The keys of `normalize`.
struct Normalize {
  std::vector<double> mean;
  std::vector<double> std;

  void describe(KeyTable& keys);
};

// normalize is not an ImageTransform, because it is applied while the pixels are written, and an ErasingTransform after that.
using Transform = std::variant<std::shared_ptr<const ImageTransform>, Normalize, std::shared_ptr<const ErasingTransform>>;
using TransformRegistry = Registry<Transform>;
TransformRegistry& transform_registry();

}  // namespace trainer::data
