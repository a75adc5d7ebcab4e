#pragma once
// What a run is told before it trains: what is hardly meant so about its settings and its images, and what cannot be trained.

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "config/experiment.h"
#include "data/dataset.h"
#include "train/engine/parts.h"
#include "train/engine/run_state.h"

namespace trainer::session {

// A warning where amp.enabled: true makes the network at least twice as slow on the CPU, because the processor does not compute in
// autocast's type; empty otherwise. Not collective. Measures some passes of a small batch, in up to a second or two passes; changes
// nothing.
std::string warning_of_autocast(const config::Experiment& experiment, engine::Network& network, const std::vector<int64_t>& sample_shape);

// Throws UsageError if a step of training would give a batch normalisation one value per channel, of which it has no variance: a batch of
// one image, such as the last one of an epoch, where the layer sees one pixel. `sample_shape`: of a training sample. The same on every
// rank, and not collective. Runs the network on one sample, in evaluation, if there is such a batch.
void check_batch_norm_counts(const config::Experiment& experiment, engine::Network& network, const engine::Plan& plan,
                             const std::vector<int64_t>& sample_shape);

// What to do when a large part of an epoch (`number`, from 0) was spent waiting for data; empty if not much was.
std::string advice_on_data(const engine::Interval& epoch, int64_t number, const config::Experiment& experiment);

// What is worth knowing of images that can be used.

// Collects from samples: orientations of EXIF, 16 bits per channel of which 8 are used, the same content in several classes, or in training
// and validation.
class ImageNotes {
 public:
  // A part of the data, "training" or "validation", whose samples are added next. `dataset` must outlive this object.
  void begin_part(const char* title, const data::Dataset& dataset) { parts_.push_back({title, &dataset}); }
  // A sample of the latest part, as it was read. Thread-safe.
  void add(int64_t index, const data::Sample& sample);

  // A sentence for each of them that was found, with its count and the first sample.
  std::vector<std::string> sentences();

 private:
  struct Part {
    const char* title;
    const data::Dataset* dataset;
  };
  struct Image {
    uint64_t content = 0;  // a hash of its bytes
    int64_t index = 0;
    int32_t label = 0;
    uint8_t part = 0;
    bool is_turned = false;
    bool has_16_bits = false;
  };

  std::string describe(const Image& image) const;
  void add_traits(std::vector<std::string>& sentences) const;
  void add_duplicates(std::vector<std::string>& sentences) const;

  std::vector<Part> parts_;
  std::mutex mutex_;  // guards the images
  std::vector<Image> images_;
};

// Looks at a few of the training samples and logs a warning for what is found, once for all of them. What cannot be read is left out.
void warn_of_images(const data::Dataset& training, Logger& logger);

}  // namespace trainer::session
