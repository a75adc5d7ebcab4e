#pragma once

#include "config/experiment.h"
#include "config/findings.h"

namespace trainer::session {

// Sets what an experiment leaves to its data set: the network's number of outputs, the transforms, and whether some of the training set are
// held out for validation. Lists the folders of the data set if its classes are folders; reads no file.
void complete_experiment(config::Experiment& experiment, config::Findings& findings);

}  // namespace trainer::session
