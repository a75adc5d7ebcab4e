#pragma once

#include <functional>

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

// Sets the task, if the experiment leaves it to the loss.
void complete_task(config::Experiment& experiment, const config::Findings& findings);

// Sets what an experiment leaves to its data set: the network's number of outputs, the transforms, and whether some of the training set are
// held out for validation. The section of the data set must be consistent.
void complete_experiment(config::Experiment& experiment, const data::DatasetFactory& dataset, config::Findings& findings);

// Sets the keys of an experiment that a run has written so that they mean what they meant then: those that the version of this program did
// not have which has written it, and whose defaults mean something else.
void adapt_to_earlier_version(config::Experiment& experiment);

}  // namespace trainer::session
