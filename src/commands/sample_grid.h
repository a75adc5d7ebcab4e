#pragma once

#include <cstdint>

#include "config/experiment.h"
#include "engine/parts.h"
#include "input/image_file.h"

namespace trainer::commands {

// The first `count` training images of an epoch as one rank sees them, transformed and with their classes, in rows and columns; without
// `normalize`, whose values are not colours. Small images are enlarged. Throws DataError naming a sample that cannot be read.
input::RgbImage draw_sample_grid(const config::Experiment& experiment, const engine::Data& data, int64_t epoch, int64_t count);

}  // namespace trainer::commands
