#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "train/engine/parts.h"
#include "train/engine/run_state.h"

namespace trainer::session {

// A warning where amp.enabled: true makes the network at least twice as slow on the CPU, because the processor does not compute in
// autocast's type; empty otherwise. Not collective. Measures some passes of a small batch, in up to a second or two passes; changes
// nothing.
std::string warning_of_autocast(const config::Experiment& experiment, engine::Network& network, const std::vector<int64_t>& sample_shape);

// Throws UsageError if a step of training would give a batch normalisation one value per channel, of which it has no variance: a batch of
// one image, such as the last one of an epoch, where the layer sees one pixel. `sample_shape`: of a training sample. The same on every
// rank, and not collective. Runs the network on one sample, in evaluation, if there is such a batch.
void check_batch_norm_counts(const config::Experiment& experiment, engine::Network& network, const engine::Plan& plan,
                             const std::vector<int64_t>& sample_shape);

// What to do when a large part of an epoch (`number`, from 0) was spent waiting for data; empty if not much was.
std::string advice_on_data(const engine::Interval& epoch, int64_t number, const config::Experiment& experiment);

}  // namespace trainer::session
