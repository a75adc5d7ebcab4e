#pragma once

#include <cstdint>

#include "config/experiment.h"
#include "data/dataset.h"
#include "data/image_file.h"
#include "data/sample_list.h"

namespace trainer::commands {

// Training images of an epoch, transformed and with their classes, in rows and columns; without `normalize`, whose values are not colours.
// Small images are enlarged. Throws DataError naming a sample that cannot be read.
data::RgbImage draw_sample_grid(const config::Experiment& experiment, const data::Dataset& dataset, const data::SampleList& samples,
                                int64_t epoch);

}  // namespace trainer::commands
