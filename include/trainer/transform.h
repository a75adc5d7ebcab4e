#pragma once
// Transforms of images: the image that they modify, their random numbers, and their interface. This header needs no LibTorch.

#include <array>
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
#include "trainer/error.h"
#include "trainer/random.h"

namespace trainer::data {

struct BlurMemory;
struct PictureMemory;
// The memory of a Picture. Each thread needs its own.
std::shared_ptr<PictureMemory> make_picture_memory();

// [height][width][channels]
struct PixelArray {
  uint8_t* data = nullptr;
  int channels = 0;
  int height = 0;
  int width = 0;

  size_t num_pixels() const { return static_cast<size_t>(height) * static_cast<size_t>(width); }
  size_t num_bytes() const { return num_pixels() * static_cast<size_t>(channels); }
};

// An image to which transforms are applied. Decoding and resizing are delayed until the pixels are needed.
class Picture {
 public:
  // Both arguments must outlive this object. Its views are valid until the memory is used for another image.
  Picture(const ImageView& image, PictureMemory& memory) : view_(image), has_values_(image.values != nullptr), memory_(memory) {}
  // An image file. This constructor and all functions that need pixels throw like decode_image().
  Picture(std::span<const uint8_t> file, PictureMemory& memory, const ImageDecoding& decoding = {});

  int channels() const { return view_.channels; }
  int height() const { return view_.window_height; }
  int width() const { return view_.window_width; }

  // Keeps the height x width pixels from (top, left) on, which may be outside the image; `padding` defines the pixels there, with kZero as
  // the value `fill` of 8-bit images. Reflection must extend beyond an edge by less than the image's height or width.
  void crop(int top, int left, int height, int width, Padding padding = Padding::kZero, uint8_t fill = 0);
  // Mirrors left and right.
  void mirror();
  // Flips top and bottom.
  void flip();
  // Resizes as defined in data/resample.h.
  void resize(int height, int width, Interpolation interpolation = Interpolation::kBilinear);
  // Performs all delayed operations and returns the image.
  const ImageView& view();
  // The labels of the pixels, to which the functions above are applied too; nullptr: the data set has no masks. Pixels of the view's window
  // outside the stored labels have no class.
  const ImageView* mask() { return mask_ == nullptr ? nullptr : &mask_->view(); }

  // The 8-bit image in writable memory. Copies it unless an earlier operation has already done so. The pointer is valid until the next call
  // of a function other than replace_pixels().
  PixelArray pixels();
  // Memory for the result of an operation that does not work in place; its input, from pixels(), stays readable until the next call. The
  // result becomes the image.
  uint8_t* replace_pixels();
  // For internal use.
  BlurMemory& blur_memory();
  // For internal use: converts an image without 8-bit pixels to 8 bits for display, with the smallest value 0 and the largest 255.
  void make_visible();
  // For internal use: sets the mask of this image, which must have the same size and outlive it.
  void set_mask(Picture& mask);

 private:
  // Whether the window is the stored image.
  bool is_whole() const;
  // Whether the window contains only stored pixels.
  bool is_inside() const;
  // The part of the image that is in the window, or can appear there by reflection.
  Box visible_part() const;
  // Decodes `image` if it is still a file; only `part` of it is needed.
  void decode(ImageView& image, const Box& part);
  template <class T>
  T* allocate(std::array<std::vector<T>, 2>& buffers, int height, int width);
  // Copies the window into separate memory, so that it is the whole image.
  void copy_window();

  std::span<const uint8_t> file_;  // the file of view_, or of resized_ while a resize is delayed; empty: the image is decoded
  ImageView view_;                 // without pixels while a resize is delayed
  ImageView resized_;              // the image that is still to be resized to the size of view_
  Interpolation interpolation_ = Interpolation::kBilinear;  // of the delayed resize
  bool is_delayed_ = false;
  bool has_values_ = false;      // whether the image has values instead of 8-bit pixels
  ImageDecoding decoding_ = {};  // of file_
  uint8_t* owned_ = nullptr;     // the memory last allocated for pixels
  PictureMemory& memory_;
  Picture* mask_ = nullptr;
};

// A sample of an epoch.
struct EpochSample {
  int64_t index = 0;        // in the data set
  uint32_t occurrence = 0;  // number of earlier occurrences in the epoch; each occurrence is augmented differently
};

// A limit for sizes and offsets in pixels, small enough that sums of them are far below the limit of int.
inline constexpr double kMaxPixels = 32768;

// The size of every image at one position in the list of transforms.
struct Frame {
  int height = 0;
  int width = 0;
  bool is_exact = true;  // false: the images have different sizes, each at least height x width
};
std::string to_string(const Frame& frame);  // such as "32 x 24 pixels" or "at least 32 x 24 pixels"

// The seeds for the random numbers of all samples in one epoch.
struct EpochSeeds {
  EpochSeeds(uint64_t seed, int64_t number)
      : epoch(number),
        of_epoch(mix_seed(seed, static_cast<uint64_t>(number))),
        of_all_epochs(mix_seed(seed, std::numeric_limits<uint64_t>::max())) {}

  int64_t epoch;
  uint64_t of_epoch;
  uint64_t of_all_epochs;  // the same in each epoch
};

// The random numbers of a sample in its epoch, and those that are the same in all epochs.
class SampleRandom : public CounterRandom {
 public:
  // `seeds` must outlive this object.
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
  // Whether a random number or the epoch was used, so that the result may differ between epochs or samples.
  bool is_used() const { return CounterRandom::is_used() || of_all_epochs_ || is_asked_for_epoch_; }

 private:
  const EpochSeeds& seeds_;
  EpochSample which_;
  std::optional<CounterRandom> of_all_epochs_;  // made on demand, because few transforms need it
  mutable bool is_asked_for_epoch_ = false;
};

// The keys of a transform, and the transform itself. apply() must be thread-safe.
class ImageTransform {
 public:
  // The frame after this transform, by default the same. Throws UsageError if the transform cannot be applied to `frame`.
  virtual Frame plan(Frame frame) const { return frame; }
  // A warning if the transform can be applied to `frame` but is probably unintended; empty: none.
  virtual std::string warning(const Frame& /*frame*/) const { return ""; }
  // Whether it needs grey or RGB images, with 1 or 3 channels.
  virtual bool uses_color() const { return false; }
  // Whether it uses only functions of Picture that do not need 8 bits, so that it supports images with 16 bits and floating-point values
  // too.
  virtual bool fits_all_depths() const { return false; }
  // Whether it moves pixels without the functions of Picture, so that a mask would no longer match the image.
  virtual bool moves_pixels() const { return false; }
  virtual void apply(Picture& picture, SampleRandom& random) const = 0;
};

// The keys of a transform that sets part of the network's input to 0, and the transform itself. draw_box() must be thread-safe.
class ErasingTransform {
 public:
  // The part of an image of this size to erase; may be empty.
  virtual Box draw_box(int height, int width, SampleRandom& random) const = 0;
};

// The keys of `normalize`.
struct Normalize {
  std::vector<double> mean;
  std::vector<double> std;

  void describe(KeyTable& keys);
};

// normalize is not an ImageTransform, because it is applied when the pixels are written, before any ErasingTransform.
using Transform = std::variant<std::shared_ptr<const ImageTransform>, Normalize, std::shared_ptr<const ErasingTransform>>;
using TransformRegistry = Registry<Transform>;
TransformRegistry& transform_registry();

}  // namespace trainer::data
