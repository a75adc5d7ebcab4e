#pragma once
// The interface of transforms, and the registry from which an experiment file chooses them. It does not use torch.
// To add one, add a file in this folder and its name in src/CMakeLists.txt.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/keys/key_table.h"
#include "base/random.h"
#include "input/picture.h"
#include "input/sample_list.h"
#include "input/transforms/normalize.h"

namespace trainer::input {

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

  int64_t epoch() const { return seeds_.epoch; }
  // Uniform in [low, high).
  double next_between(double low, double high) { return low + (high - low) * (next_uint32() * 0x1.0p-32); }
  CounterRandom& of_all_epochs() {
    if (!of_all_epochs_) of_all_epochs_.emplace(seeds_.of_all_epochs, static_cast<uint64_t>(which_.index), which_.occurrence);
    return *of_all_epochs_;
  }

 private:
  const EpochSeeds& seeds_;
  EpochSample which_;
  std::optional<CounterRandom> of_all_epochs_;  // made when a transform asks for it, because few do
};

// The keys of a transform, and the transform itself. Several threads call apply() concurrently.
class ImageTransform : public Options {
 public:
  // The frame after this transform. Throws UsageError when it cannot be applied to `frame`.
  virtual Frame plan(Frame frame) const = 0;
  // What is hardly meant so, though it can be applied to `frame`; empty: nothing.
  virtual std::string warning(const Frame& /*frame*/) const { return ""; }
  // Whether it needs images with 1 or 3 channels, which are grey values or red, green and blue.
  virtual bool uses_color() const { return false; }
  virtual void apply(Picture& picture, SampleRandom& random) const = 0;
};

// The keys of a transform that sets part of the network's input to 0, and the transform itself. As above, draw_box() is called
// concurrently.
class ErasingTransform : public Options {
 public:
  // The part to be erased of an image of that size; it may be empty.
  virtual Box draw_box(int height, int width, SampleRandom& random) const = 0;
};

// normalize is not an ImageTransform, because it is applied while the pixels are written, and an ErasingTransform after that.
using Transform = std::variant<std::shared_ptr<const ImageTransform>, Normalize, std::shared_ptr<const ErasingTransform>>;
using TransformRegistry = Registry<Transform>;

const TransformRegistry& transform_registry();

// Registers an ImageTransform.
template <class T>
void add_image_transform(TransformRegistry& registry, std::string name, std::string doc) {
  registry.add<T>(std::move(name), std::move(doc), [](const T& transform) { return std::make_shared<T>(transform); });
}
template <class T>
void add_erasing_transform(TransformRegistry& registry, std::string name, std::string doc) {
  registry.add<T>(std::move(name), std::move(doc),
                  [](const T& transform) { return std::shared_ptr<const ErasingTransform>(std::make_shared<T>(transform)); });
}

}  // namespace trainer::input
