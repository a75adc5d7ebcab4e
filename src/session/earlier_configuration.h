#pragma once

#include "config/experiment.h"

namespace trainer::session {

// Sets the keys of an experiment that a run has written so that they mean what they meant then: those that the version of this program did
// not have which has written it, and whose defaults mean something else.
void adapt_to_earlier_version(config::Experiment& experiment);

}  // namespace trainer::session
