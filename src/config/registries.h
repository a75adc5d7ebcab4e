#pragma once
// All that an experiment file can name.

#include <functional>

#include "base/keys/registry.h"
#include "task/options.h"

namespace trainer::config {

class Findings;
struct Experiment;

// The registries of all components that an experiment file can name; they must outlive this struct.
struct Registries {
  const RegistryBase& models;
  const RegistryBase& datasets;
  const RegistryBase& transforms;
  const RegistryBase& batch_transforms;
  const RegistryBase& losses;
  const RegistryBase& optimizers;
  const RegistryBase& lr_schedulers;
  const RegistryBase& samplers;
  task::MonitorChoices monitor = {};
  // Sets the values that the file leaves to other components, and checks components against each other, such as the network against the
  // data set, and against other sections. Called once the file is read; it reads no more of a data set than DatasetRegistry::make().
  std::function<void(Experiment& experiment, Findings& findings)> check = {};
};

}  // namespace trainer::config
