#pragma once

#include <cstdint>
#include <vector>

#include "report/report_data.h"

namespace trainer::commands {

// Small JPEG pictures of validation samples as they are stored, without transforms. The data set is that of the run's configuration;
// nothing is downloaded. Does not throw: the result's note says why there are no pictures.
report::Pictures read_sample_pictures(const history::RunRecord& run, const std::vector<int64_t>& samples);

}  // namespace trainer::commands
