#pragma once
// Statistics of the images of a data set: their sizes and the values of their pixels.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "run/recipe/advice.h"
#include "trainer/component.h"

namespace trainer::survey {

struct ImageSize {
  int height = 0;
  int width = 0;
  bool operator==(const ImageSize&) const = default;
};

struct ImageSizes {
  std::vector<ImageSize> sizes = {};  // of the images that could be read
  int64_t num_unreadable = 0;
  std::string first_unreadable = {};  // "sample 17, data/cat/1.jpg: reason"
};

// Statistics of each channel, for pixels from 0 to 1.
struct PixelStatistics {
  std::vector<double> mean = {};
  std::vector<double> std = {};  // of the population
  int64_t num_images = 0;        // that could be read
};

// Receives the number of samples that were read so far, many times a second.
using ReportProgress = std::function<void(int64_t num_read)>;

// The sizes of these samples. Adds the samples to the latest part of `notes`, to which they must belong. Reads in several threads. Skips
// images that cannot be read; other errors throw Error.
ImageSizes find_sizes(const data::Dataset& dataset, const std::vector<int64_t>& indices, recipe::ImageNotes& notes,
                      const ReportProgress& report = {});

// The statistics of these samples after `transforms`, which must not contain normalize. Uses all pixels, and adds them in an order that
// does not depend on the threads. Throws like find_sizes(), and DataError if no image can be read.
PixelStatistics measure_pixels(const data::Dataset& dataset, const std::vector<int64_t>& indices,
                               const std::vector<ComponentConfig>& transforms, const ReportProgress& report = {});

}  // namespace trainer::survey
