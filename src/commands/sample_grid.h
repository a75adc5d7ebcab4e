#pragma once

#include <cstdint>

#include "config/experiment.h"
#include "input/dataset.h"
#include "input/image_file.h"
#include "input/sample_list.h"

namespace trainer::commands {

// Training images of an epoch, transformed and with their classes, in rows and columns; without `normalize`, whose values are not colours.
// Small images are enlarged. Throws DataError naming a sample that cannot be read.
input::RgbImage draw_sample_grid(const config::Experiment& experiment, const input::Dataset& dataset, const input::SampleList& samples,
                                 int64_t epoch);

}  // namespace trainer::commands
