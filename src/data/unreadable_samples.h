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

// Checks, reads and decodes all samples in `num_threads` threads, and returns those that cannot be or whose label is not one of the
// classes, in the order of the data set. `report_progress` is called by this thread a few times a second with the number of samples that
// were read; when it returns false, the rest is not read. `visit` is called by the other threads with each sample that can be used, and its
// decoded image.
std::vector<UnreadableSample> find_unreadable_samples(
    const Dataset& dataset, int num_threads, const std::function<bool(int64_t num_read)>& report_progress,
    const std::function<void(int64_t index, const Sample&, const ImageView& image)>& visit = {});

}  // namespace trainer::data
