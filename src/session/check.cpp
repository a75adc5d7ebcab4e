#include "session/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "datasets/registry.h"
#include "input/transforms.h"
#include "models/registry.h"
#include "nn/loss.h"
#include "optim/lr_scheduler.h"
#include "optim/optimizer.h"
#include "task/task.h"

namespace trainer::session {
namespace {

void check_task(const config::Experiment& experiment, const input::DatasetInfo& info, config::Findings& findings) {
  if (!findings.are_readable({"loss", "checkpoint"})) return;
  const auto task = task::make_task(nn::loss_registry().make(experiment.loss.component));
  const auto& section = experiment.checkpoint;
  const auto mismatches = task->mismatches({.loss = experiment.loss.component.name,
                                            .dataset = experiment.dataset.component.name,
                                            .num_classes = info.num_classes,
                                            .monitor = section.monitor});
  for (const auto& mismatch : mismatches) findings.refuse(mismatch.key, mismatch.text);
  const auto monitored = section.monitor == "auto" ? "validation/" + task->default_metric() : section.monitor;
  for (const auto& metric : task->metrics().validation) {
    if (monitored != "validation/" + metric.name || section.mode == config::MonitorMode::kAuto) continue;
    const bool chooses_most = section.mode == config::MonitorMode::kMax;
    if (chooses_most == metric.higher_is_better) continue;
    findings.warn("checkpoint.mode", fmt::format("the checkpoint with the {} {} counts as the best, but {} of it is better; leave mode out",
                                                 chooses_most ? "most" : "least", monitored, metric.higher_is_better ? "more" : "less"));
  }
}

void check_outputs(const config::Experiment& experiment, const models::ModelOptions& model, const input::DatasetInfo& info,
                   config::Findings& findings) {
  const int64_t num_targets = info.num_classes > 0 ? info.num_classes : info.num_targets;
  if (model.num_outputs() == num_targets) return;
  findings.refuse("model." + model.outputs_key(),
                  fmt::format("{} has {} outputs, but {} has {} {}", experiment.model.component.name, model.num_outputs(),
                              experiment.dataset.component.name, num_targets, info.num_classes > 0 ? "classes" : "targets"));
}

// `model`: null if its section has problems.
void check_transforms(const std::string& key, const std::vector<config::ComponentConfig>& transforms, const config::Experiment& experiment,
                      const models::ModelOptions* model, const input::DatasetInfo& info, config::Findings& findings) {
  bool can_be_applied = true;
  for (const auto& finding : input::check_transforms(transforms, info)) {
    const auto path = fmt::format("{}[{}]", key, finding.index);
    if (finding.is_warning) {
      findings.warn(path, finding.text);
    } else {
      findings.refuse(path, finding.text);
      can_be_applied = false;
    }
  }
  if (!can_be_applied || model == nullptr) return;
  const auto shape = input::Pipeline(transforms, info, {}).output_shape();
  const auto wanted = model->input_shape();
  if (std::ranges::equal(wanted, shape, [](int64_t want, int64_t have) { return want == -1 || want == have; })) return;
  findings.refuse("model.name", fmt::format("{} takes samples of shape {}, but {} has {} after {}", experiment.model.component.name,
                                            fmt::join(wanted, "x"), experiment.dataset.component.name, fmt::join(shape, "x"), key));
}

void check_optimizer(const config::Experiment& experiment, config::Findings& findings) {
  if (!findings.are_readable({"optimizer", "training"})) return;
  const auto& name = experiment.optimizer.component.name;
  const auto num_micro_steps = experiment.training.accumulation_steps;
  const auto optimizer = optim::optimizer_registry().make(experiment.optimizer.component, {});
  if (!optimizer->needs_second_pass() || num_micro_steps == 1) return;
  findings.refuse("optimizer.name", fmt::format("{} processes each batch twice, so it cannot accumulate {} micro-steps; set "
                                                "training.accumulation_steps: 1",
                                                name, num_micro_steps));
}

}  // namespace

void check_components(const config::Experiment& experiment, config::Findings& findings) {
  optim::check_lr_schedule(experiment, findings);
  check_optimizer(experiment, findings);
  if (!findings.are_readable({"dataset"})) return;
  const auto info = datasets::dataset_registry().make(experiment.dataset.component).info;
  check_task(experiment, info, findings);
  const models::ModelOptions* model = nullptr;
  if (findings.are_readable({"model"})) model = &dynamic_cast<const models::ModelOptions&>(*experiment.model.component.options);
  if (model != nullptr) check_outputs(experiment, *model, info, findings);
  const auto& section = experiment.dataset;
  check_transforms("dataset.train_transforms", section.train_transforms, experiment, model, info, findings);
  check_transforms("dataset.validation_transforms", section.validation_transforms, experiment, model, info, findings);
}

}  // namespace trainer::session
