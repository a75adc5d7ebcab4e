#include "session/registries.h"

#include <fmt/format.h>

#include "data/batch_transforms/batch_transform.h"
#include "data/samplers/sampler.h"
#include "data/transforms/transform.h"
#include "datasets/registry.h"
#include "models/registry.h"
#include "optim/lr_scheduler.h"
#include "optim/optimizer.h"
#include "session/check.h"
#include "session/plugins.h"
#include "task/task.h"
#include "trainer/nn.h"
// Declares the registries again.
#include "trainer/registry.h"

namespace trainer::session {
namespace {

config::MonitorChoices monitor_choices() {
  const auto name = [](const std::string& metric) { return "validation/" + metric; };
  config::MonitorChoices choices;
  const auto columns = task::all_metrics().validation;
  for (size_t i = 1; i < columns.size(); ++i) choices.names.push_back(name(columns[i].name));
  choices.names.push_back(name(columns[0].name));
  for (const auto& task : task::task_registry().names()) {
    const auto metric = task::task_registry().make(task::task_registry().configure(task), nullptr)->default_metric();
    choices.default_doc += fmt::format("{}{} for {}", choices.default_doc.empty() ? "" : ", ", name(metric), task);
  }
  return choices;
}

}  // namespace

config::Registries all_registries() {
  return {.models = models::model_registry(),
          .datasets = datasets::dataset_registry(),
          .transforms = data::transform_registry(),
          .batch_transforms = data::batch_transform_registry(),
          .tasks = task::task_registry(),
          .losses = nn::loss_registry(),
          .optimizers = optim::optimizer_registry(),
          .lr_schedulers = optim::lr_scheduler_registry(),
          .samplers = data::sampler_registry(),
          .sinks = reporting::sink_registry(),
          .monitor = monitor_choices,
          .check = [](config::Experiment& experiment, config::Findings& findings) { check_components(experiment, findings); },
          .load_plugin = load_plugin};
}

}  // namespace trainer::session
