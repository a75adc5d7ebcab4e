#pragma once

#include <cstdint>
#include <string>

#include "config/experiment.h"
#include "engine/run_state.h"

namespace trainer::session {

// What to do when a large part of an epoch (`number`, from 0) was spent waiting for data; empty if not much was.
std::string advice_on_data(const engine::Interval& epoch, int64_t number, const config::Experiment& experiment);

}  // namespace trainer::session
