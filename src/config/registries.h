#pragma once
// All that an experiment file can name.

#include <functional>
#include <string>

#include "task/options.h"
#include "trainer/component.h"

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
  const RegistryBase& sinks;
  task::MonitorChoices monitor = {};
  // Sets the values that the file leaves to other components, and checks components against each other, such as the network against the
  // data set, and against other sections. Called once the file is read; it reads no more of a data set than DatasetRegistry::make().
  std::function<void(Experiment& experiment, Findings& findings)> check = {};
  // Loads a shared library that adds components to the registries; throws UsageError. load() calls it for `plugins`.
  std::function<void(const std::string& file)> load_plugin = {};
};

}  // namespace trainer::config
