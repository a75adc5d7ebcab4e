#pragma once
// The registries of everything that an experiment file can name.

#include <functional>
#include <string>
#include <vector>

#include "trainer/component.h"

namespace trainer::config {

class Findings;
struct Experiment;

// The metrics by which a run can choose its best checkpoint.
struct MonitorChoices {
  std::vector<std::string> names;  // "validation/top1" and so on
  std::string default_doc;         // describes the default choice
};

// The registries of all components that an experiment file can name; they must outlive this struct.
struct Registries {
  const RegistryBase& models;
  const RegistryBase& layers;  // of the model `layers`
  const RegistryBase& datasets;
  const RegistryBase& transforms;
  const RegistryBase& batch_transforms;
  const RegistryBase& tasks;
  const RegistryBase& losses;
  const RegistryBase& optimizers;
  const RegistryBase& lr_schedulers;
  const RegistryBase& samplers;
  const RegistryBase& sinks;
  // Called when a file is read, after its plug-ins were loaded, because plug-ins may add metrics.
  std::function<MonitorChoices()> monitor;
  // Called after the whole file was read; neither reads more of a data set than DatasetRegistry::make() does.
  // Returns the experiment with the values that the file omits and that depend on other components.
  std::function<Experiment(const Experiment& experiment, const Findings& findings)> complete = {};
  // Checks the components of the completed experiment against each other, such as the network against the data set, and other sections.
  std::function<void(const Experiment& experiment, Findings& findings)> check = {};
  // Loads a shared library that adds components to the registries; throws UsageError. load() calls it for `plugins`.
  std::function<void(const std::string& file)> load_plugin = {};
};

}  // namespace trainer::config
