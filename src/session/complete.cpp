#include "session/complete.h"

#include "config/reader.h"
#include "datasets/registry.h"
#include "input/transforms/transform.h"
#include "models/model.h"

namespace trainer::session {
namespace {

// Of a training set without a validation set.
constexpr double kHeldOut = 0.1;

std::vector<config::ComponentConfig> read_transforms(const std::string& yaml, const std::string& dataset) {
  std::vector<config::ComponentConfig> components;
  config::Problems problems;
  config::read_section(
      config::parse_yaml("transforms: " + yaml, "the default transforms of " + dataset),
      [&](config::KeyTable& keys) { keys.add_components("transforms", components, input::transform_registry(), ""); }, "", problems);
  problems.throw_if_any();
  return components;
}

void complete_dataset(config::DatasetSection& section, const datasets::DatasetFactory& factory, const config::Findings& findings) {
  const auto& defaults = factory.default_transforms;
  const auto& name = section.component.name;
  if (!findings.is_given("dataset.train_transforms")) section.train_transforms = read_transforms(defaults.train, name);
  if (!findings.is_given("dataset.validation_transforms")) section.validation_transforms = read_transforms(defaults.validation, name);
  const bool is_known = factory.missing.empty();
  if (!section.validation_split.value && is_known) section.validation_split.value = factory.has_validation ? 0 : kHeldOut;
}

}  // namespace

void complete_experiment(config::Experiment& experiment, config::Findings& findings) {
  if (!findings.are_consistent({"dataset"})) return;
  const auto factory = datasets::dataset_registry().make(experiment.dataset.component);
  complete_dataset(experiment.dataset, factory, findings);
  if (!findings.are_consistent({"model"})) return;
  auto& model = dynamic_cast<models::ModelOptions&>(*experiment.model.component.options);
  if (!model.takes_num_outputs()) return;
  const auto& info = factory.info;
  if (info.num_classes == input::kUnknownClasses) {
    findings.refuse("dataset." + factory.missing_key, factory.missing);
  } else {
    model.set_num_outputs(info.num_classes > 0 ? info.num_classes : info.num_targets);
  }
}

}  // namespace trainer::session
