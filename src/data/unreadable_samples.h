#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace trainer::data {

struct UnreadableSample {
  int64_t index = 0;
  std::string reason;
};

// Checks, reads and decodes all samples on `num_threads` threads. Returns the samples for which this fails or whose label or mask is not
// valid, in the order of the data set. The calling thread calls `report_progress` a few times a second with the number of samples that were
// read so far; if it returns false, the rest is not read. The other threads call `visit` with each usable sample and its decoded image.
std::vector<UnreadableSample> find_unreadable_samples(
    const Dataset& dataset, int num_threads, const std::function<bool(int64_t num_read)>& report_progress,
    const std::function<void(int64_t index, const Sample&, const ImageView& image)>& visit = {});

}  // namespace trainer::data
