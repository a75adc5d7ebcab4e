#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "config/problems.h"
#include "datasets/registry.h"
#include "trainer/model.h"

namespace trainer::session {

// Completes the experiment and checks that network, loss, transforms and optimizer fit the data set and each other.
void check_components(config::Experiment& experiment, config::Findings& findings);
// The same for the data set that `make_dataset` returns. `make_dataset` is called only if the section `dataset` is consistent.
void check_components(config::Experiment& experiment, config::Findings& findings,
                      const std::function<data::DatasetFactory()>& make_dataset);

// Sets the number of channels, if it is unknown because no image can be read, to that for which the experiment is written. `model`: null if
// the section `model` is not consistent.
void assume_channels(const config::Experiment& experiment, const models::ModelOptions* model, data::DatasetInfo& info);

// For messages: "10 classes" or "2 targets", for each of which a network needs one output.
std::string outputs_text(const data::DatasetInfo& info);

}  // namespace trainer::session
