#pragma once

#include "config/experiment.h"
#include "engine/parts.h"

namespace trainer::session {

// Throws UsageError if a step of training would give a batch normalisation one value per channel, of which it has no variance: a batch of
// one image, such as the last one of an epoch, where the layer sees one pixel. `sample_shape`: of a training sample. The same on every
// rank, and not collective. Runs the network on one sample, in evaluation, if there is such a batch.
void check_batch_norm_counts(const config::Experiment& experiment, engine::Network& network, const engine::Plan& plan,
                             const std::vector<int64_t>& sample_shape);

}  // namespace trainer::session
