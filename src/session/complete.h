#pragma once

#include "config/experiment.h"
#include "config/findings.h"
#include "datasets/registry.h"

namespace trainer::session {

// Sets what an experiment leaves to its data set: the network's number of outputs, the transforms, and whether some of the training set are
// held out for validation. The section of the data set must be consistent.
// The task of a loss, if the file names none.
void complete_task(config::Experiment& experiment, const config::Findings& findings);

void complete_experiment(config::Experiment& experiment, const data::DatasetFactory& dataset, config::Findings& findings);

}  // namespace trainer::session
