#include "session/complete.h"

#include "config/reader.h"
#include "data/transforms/transform.h"
#include "task/task.h"
#include "trainer/model.h"
#include "trainer/nn.h"

namespace trainer::session {
namespace {

// Of a training set without a validation set.
constexpr double kHeldOut = 0.1;

std::vector<ComponentConfig> read_transforms(const std::string& yaml, const std::string& dataset) {
  return config::read_components(yaml, "the default transforms of " + dataset, data::transform_registry());
}

void complete_dataset(config::Experiment& experiment, const data::DatasetFactory& factory, const config::Findings& findings) {
  auto& section = experiment.dataset;
  const auto& defaults = factory.default_transforms;
  const auto& name = section.component.name;
  if (!findings.is_given("dataset.train_transforms")) section.train_transforms = read_transforms(defaults.train, name);
  if (!findings.is_given("dataset.validation_transforms")) section.validation_transforms = read_transforms(defaults.validation, name);
  const bool is_known = factory.missing.empty();
  if (!section.validation_split.value && is_known) {
    section.validation_split.value = factory.has_validation || experiment.validation.is_off() ? 0 : kHeldOut;
  }
}

}  // namespace

void complete_task(config::Experiment& experiment, const config::Findings& findings) {
  if (findings.is_given("task.name") || !findings.are_readable({"loss"})) return;
  const auto loss = nn::loss_registry().make(experiment.loss.component);
  experiment.task.component = task::task_registry().configure(task::default_task(*loss));
}

void complete_experiment(config::Experiment& experiment, const data::DatasetFactory& dataset, config::Findings& findings) {
  complete_dataset(experiment, dataset, findings);
  if (!findings.are_consistent({"model"})) return;
  auto& model = dynamic_cast<models::ModelOptions&>(*experiment.model.component.options);
  const auto& info = dataset.info;
  if (info.shape.size() == 3) model.set_num_channels(info.shape.front());
  if (!model.takes_num_outputs()) return;
  if (info.num_classes == data::kUnknownClasses) {
    findings.refuse("dataset." + dataset.missing_key, dataset.missing);
  } else {
    model.set_num_outputs(info.num_classes > 0 ? info.num_classes : info.num_targets);
  }
}

}  // namespace trainer::session
