#include "config/experiment.h"

#include <fmt/format.h>

#include "config/problems.h"

namespace trainer::config {

std::string Experiment::place_of(const std::string& path) const {
  const auto position = position_of(tree, path);
  return position.source.empty() ? path : to_string(position) + ": " + path;
}

void Experiment::check(Findings& findings) const {
  const bool names_a_folder = experiment.find('/') == std::string::npos && experiment != "." && experiment != ".." && !experiment.empty();
  if (findings.are_readable({"experiment"}) && !names_a_folder) {
    findings.refuse("experiment", fmt::format("\"{}\" cannot name a folder; use letters, digits, - and _", experiment));
  }
  // Of a name in a folder, on Linux.
  constexpr size_t kMostBytes = 255;
  if (findings.are_readable({"experiment"}) && experiment.size() > kMostBytes) {
    findings.refuse("experiment",
                    fmt::format("a name of {} bytes, but a folder's name has at most {}; shorten it", experiment.size(), kMostBytes));
  }
  const auto& global_batch_size = dataloader.global_batch_size;
  if (findings.are_readable({"dataloader", "training"}) && global_batch_size && *global_batch_size < training.accumulation_steps) {
    findings.refuse("dataloader.global_batch_size",
                    fmt::format("{} images cannot be shared by training.accumulation_steps = {}; choose at least as many",
                                *global_batch_size, training.accumulation_steps));
  }
  const auto warmup_epochs = lr_scheduler.warmup.epochs;
  if (findings.are_readable({"lr_scheduler", "training"}) && training.epochs && warmup_epochs >= static_cast<double>(*training.epochs)) {
    findings.refuse("lr_scheduler.warmup_epochs",
                    fmt::format("the warm-up of {} {} is not shorter than the training, training.epochs = {}; shorten it or train longer",
                                warmup_epochs, warmup_epochs == 1 ? "epoch" : "epochs", *training.epochs));
  }
  if (findings.are_readable({"training", "validation"}) && training.early_stopping && validation.is_off()) {
    findings.refuse("training.early_stopping",
                    "needs validations, but validation.every_epochs and validation.every_steps are null; set one of them");
  }
  if (findings.are_readable({"model", "training"}) && model.freeze.empty()) {
    if (training.cache_features) findings.refuse("training.cache_features", "needs frozen layers; add model.freeze: [backbone]");
    if (training.unfreeze_after) findings.refuse("training.unfreeze_after", "has no effect without model.freeze; leave it out");
  }
  if (findings.are_readable({"runtime", "amp"}) && runtime.dtype == device::FloatType::kFloat64 && amp.enabled.value.value_or(false)) {
    findings.refuse("amp.enabled", "autocast lowers the precision that runtime.dtype: float64 asks for; choose one of them");
  }
}

void Experiment::describe_plugins(KeyTable& keys) {
  keys.add("plugins", plugins,
           {.doc = "Shared libraries that add networks, data sets, transforms, tasks, metrics, losses, optimizers or sinks; [] loads none.",
            .is_path = true,
            .may_be_empty = false});
}

void Experiment::describe(KeyTable& keys, const Registries& registries) {
  keys.add("experiment", experiment, {.doc = "Names the run and its folder.", .required = true});
  keys.add("seed", seed, {.min = 0, .doc = "Every random choice is a function of it."});
  keys.add("output_dir", output_dir,
           {.doc = "The run lives in <output_dir>/<experiment>, unless --run-dir names another folder.",
            .is_path = true,
            .may_be_empty = false});
  describe_plugins(keys);
  keys.add_section(
      "model", [&](KeyTable& section) { model.describe(section, registries.models); }, "The network.");
  keys.add_section(
      "dataset", [&](KeyTable& section) { dataset.describe(section, registries); }, "The images and what is done to them.");
  keys.add_section(
      "dataloader", [&](KeyTable& section) { dataloader.describe(section, registries.samplers); }, "How batches are made.");
  keys.add_section(
      "task", [&](KeyTable& section) { task.describe(section, registries.tasks); }, "The task of the network.");
  keys.add_section(
      "loss", [&](KeyTable& section) { loss.describe(section, registries.losses); }, "What is minimised.");
  keys.add_section(
      "optimizer", [&](KeyTable& section) { optimizer.describe(section, registries.optimizers); }, "How parameters are updated.");
  keys.add_section(
      "lr_scheduler", [&](KeyTable& section) { lr_scheduler.describe(section, registries.lr_schedulers); },
      "The learning rate over the training, as a factor on the optimizer's lr.");
  keys.add_section(
      "training", [&](KeyTable& section) { training.describe(section); }, "The training loop.");
  keys.add_section(
      "runtime", [&](KeyTable& section) { runtime.describe(section); }, "Where and in which precision.");
  keys.add_section(
      "amp", [&](KeyTable& section) { amp.describe(section); }, "Automatic mixed precision.");
  keys.add_section(
      "distributed", [&](KeyTable& section) { distributed.describe(section); }, "How the processes of a run work together.");
  keys.add_section(
      "validation", [&](KeyTable& section) { trainer::describe(section, validation); }, "Measuring on data that is not trained on.");
  keys.add_section(
      "checkpoint", [&](KeyTable& section) { checkpoint.describe(section, registries); }, "What is saved to resume from.");
  keys.add_section(
      "logging", [&](KeyTable& section) { logging.describe(section, registries.sinks); }, "What is written while training.");
}

}  // namespace trainer::config
