#pragma once

#include <optional>

#include "config/experiment.h"
#include "drawing/rgb_image.h"
#include "engine/parts.h"

namespace trainer::commands {

// Images of the first batch that this rank trains on, in rows and columns, as the network gets them: transformed, and mixed by
// dataset.batch_transforms, with their normalisation undone so that they have colours. Each has the name of its class, a mixed one those
// with the largest parts. Only on a rank that reads the data, before the training. nullopt: the samples are not images. Of a sample that
// cannot be read there is a grey box.
std::optional<drawing::RgbImage> draw_first_batch(const config::Experiment& experiment, engine::Parts& parts);

}  // namespace trainer::commands
