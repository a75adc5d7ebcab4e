#pragma once
// What a program has to know to use a network that is in a file: its classes, and how images become its input.

#include <string>

#include "config/experiment.h"
#include "data/dataset.h"
#include "session/network_file.h"

namespace trainer::session {

// The properties of the samples that the network was trained on, from the experiment's data set; those that depend on its files, from the
// network's file if that has them.
data::DatasetInfo samples_of(const config::Experiment& experiment, const NetworkFile& file);

// The metadata of exported networks (docs/evaluation.md): a JSON object with the network's name, the names of its classes, the shape of one
// input and dataset.validation_transforms with all their values.
std::string describe_network(config::Experiment& experiment, const NetworkFile& file);

}  // namespace trainer::session
