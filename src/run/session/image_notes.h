#pragma once
// What is worth knowing of images that can be used.

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "data/dataset.h"

namespace trainer::session {

// Collects from samples: orientations of EXIF that are ignored, 16 bits per channel, the same content in several classes, or in training
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
