#pragma once

#include <functional>
#include <string>

#include "config/experiment.h"
#include "config/problems.h"
#include "run/samples/open_samples.h"
#include "trainer/model.h"

namespace trainer::recipe {

using MakeDataset = std::function<data::DatasetFactory(const config::Experiment& experiment)>;

// For config::Registries. Sets what depends on the data set: the network's numbers of channels and outputs and its image size, the
// transforms, the task, and whether a part of the training set is held out for validation.
config::Experiment complete(const config::Experiment& experiment, const config::Findings& findings,
                            const MakeDataset& make = samples::dataset_of);
// Checks that network, loss, transforms and optimizer fit the data set and each other.
void check_components(const config::Experiment& experiment, config::Findings& findings, const MakeDataset& make = samples::dataset_of);

// Sets the number of channels, if it is unknown because no image can be read, to that for which the experiment is written. `model`: null if
// the section `model` is not consistent.
void assume_channels(const config::Experiment& experiment, const models::ModelOptions* model, data::DatasetInfo& info);

// For messages: "10 classes" or "2 targets", for each of which a network needs one output.
std::string outputs_text(const data::DatasetInfo& info);

}  // namespace trainer::recipe
