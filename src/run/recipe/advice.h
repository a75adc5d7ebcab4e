#pragma once
// Warnings before and during training about settings and images that are probably unintended, and errors for what cannot be trained.

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "config/experiment.h"
#include "data/dataset.h"
#include "run/recipe/recipe.h"
#include "train/engine/parts.h"
#include "train/engine/run_state.h"

namespace trainer::recipe {

// Throws UsageError if in training a batch normalisation would get a single value per channel, whose variance is undefined. This happens
// when a batch, such as the last batch of an epoch, has one image and the layer's input is one pixel. `sample_shape`: of a training sample.
// The result is the same on every rank; not collective. If a batch has one image, runs the network on one sample in eval mode.
void check_batch_norm_counts(const Recipe& recipe, engine::Network& network, const engine::Plan& plan,
                             const std::vector<int64_t>& sample_shape);

// Returns advice if a large part of an epoch (`number`, from 0) was spent waiting for data; empty otherwise.
std::string advice_on_data(const engine::Interval& epoch, int64_t number, const config::Experiment& experiment);

// Collects properties of samples that may be unintended: EXIF orientations, 16 bits per channel of which only 8 are used, files of
// several images, and arrays whose channels come first.
class ImageNotes {
 public:
  // Begins a part of the data, "training" or "validation", to which the next samples belong. `dataset` must outlive this object.
  void begin_part(const char* title, const data::Dataset& dataset) { parts_.push_back({title, &dataset}); }
  // Adds a sample of the latest part, as it was read. Thread-safe.
  void add(int64_t index, const data::Sample& sample);

  // A sentence for each kind of finding, with the number of images and the first image.
  std::vector<std::string> sentences();

 private:
  struct Part {
    const char* title;
    const data::Dataset* dataset;
  };
  struct Image {
    int64_t index = 0;
    int32_t label = 0;
    uint8_t part = 0;
    bool is_turned = false;
    bool has_16_bits = false;
    bool has_pages = false;
    bool are_channels_first = false;
  };

  std::string describe(const Image& image) const;

  std::vector<Part> parts_;
  std::mutex mutex_;  // guards the images
  std::vector<Image> images_;
};

// Checks a few of the training samples and logs one warning for each kind of finding. Skips samples that cannot be read.
void warn_of_images(const data::Dataset& training, Logger& logger);

}  // namespace trainer::recipe
