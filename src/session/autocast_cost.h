#pragma once

#include <string>
#include <vector>

#include "config/experiment.h"
#include "engine/parts.h"

namespace trainer::session {

// A warning where amp.enabled: true makes the network at least twice as slow on the CPU, because the processor does not compute in
// autocast's type; empty otherwise. Not collective. Measures some passes of a small batch, in up to a second or two passes; changes
// nothing.
std::string warning_of_autocast(const config::Experiment& experiment, engine::Network& network, const std::vector<int64_t>& sample_shape);

}  // namespace trainer::session
