#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "config/problems.h"
#include "datasets/registry.h"

namespace trainer::session {

// Completes the experiment, and makes the checks that need to know the components: that network, loss, transforms and
// optimizer fit the data set and each other.
void check_components(config::Experiment& experiment, config::Findings& findings);
// The same for a data set that `make_dataset` gives, which is called when the section `dataset` is consistent.
void check_components(config::Experiment& experiment, config::Findings& findings,
                      const std::function<data::DatasetFactory()>& make_dataset);

// For messages: "10 classes" or "2 targets", of which a network needs an output each.
std::string outputs_text(const data::DatasetInfo& info);

// Sets the keys of an experiment that a run has written so that they mean what they meant then: those that the version of this program did
// not have which has written it, and whose defaults mean something else.
void adapt_to_earlier_version(config::Experiment& experiment);

}  // namespace trainer::session
