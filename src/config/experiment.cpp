#include "config/experiment.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/problems.h"

namespace trainer::config {
namespace {

bool has_overrides(const Node& value) {
  return value.position.is_on_command_line() || std::ranges::any_of(value.items, has_overrides) ||
         std::ranges::any_of(value.members, [](const Node::Member& member) { return has_overrides(member.value); });
}

}  // namespace

std::string Experiment::place_of(const std::string& path) const {
  const auto position = position_of(tree, path);
  return position.source.empty() ? path : to_string(position) + ": " + path;
}

bool Experiment::is_on_command_line(const std::string& path) const {
  const auto* value = find_value(tree, path);
  // Without a value, the section around it may be from the command line.
  return value == nullptr ? position_of(tree, path).is_on_command_line() : has_overrides(*value);
}

void Experiment::check(Findings& findings) const {
  const bool names_a_folder = experiment.find('/') == std::string::npos && experiment != "." && experiment != ".." && !experiment.empty();
  if (findings.are_readable({"experiment"}) && !names_a_folder) {
    findings.refuse("experiment", fmt::format("\"{}\" is not a valid folder name; use letters, digits, - and _", experiment));
  }
  // The length of the longest file name on Linux.
  constexpr size_t kMostBytes = 255;
  if (findings.are_readable({"experiment"}) && experiment.size() > kMostBytes) {
    findings.refuse("experiment", fmt::format("the name has {} bytes, but a folder's name can have at most {}; shorten it",
                                              experiment.size(), kMostBytes));
  }
  const auto& global_batch_size = dataloader.global_batch_size;
  if (findings.are_readable({"dataloader", "training"}) && global_batch_size && *global_batch_size < training.accumulation_steps) {
    findings.refuse(
        "dataloader.global_batch_size",
        fmt::format("{} images cannot be divided into training.accumulation_steps = {} micro-steps; choose at least that many images",
                    *global_batch_size, training.accumulation_steps));
  }
  const auto warmup_epochs = lr_scheduler.warmup.epochs;
  if (findings.are_readable({"lr_scheduler", "training"}) && training.epochs && warmup_epochs >= static_cast<double>(*training.epochs)) {
    findings.refuse(
        "lr_scheduler.warmup_epochs",
        fmt::format(
            "the warm-up of {} {} must be shorter than the training run (training.epochs = {}); shorten the warm-up or train longer",
            warmup_epochs, warmup_epochs == 1 ? "epoch" : "epochs", *training.epochs));
  }
  if (findings.are_readable({"training", "validation"}) && training.early_stopping && validation.is_off()) {
    findings.refuse("training.early_stopping",
                    "needs validations, but validation.every_epochs and validation.every_steps are null; set one of them");
  }
  if (findings.are_readable({"model", "training"}) && model.freeze.empty()) {
    if (training.cache_features) findings.refuse("training.cache_features", "needs frozen layers; add model.freeze: [backbone]");
    if (training.unfreeze_after)
      findings.refuse("training.unfreeze_after", "has no effect without model.freeze; set model.freeze, or remove this key");
  }
  if (findings.are_readable({"runtime", "amp"}) && runtime.dtype == device::FloatType::kFloat64 && amp.enabled.value.value_or(false)) {
    findings.refuse("amp.enabled", "true contradicts runtime.dtype: float64, because autocast computes in 16 bits; remove one of them");
  }
}

void Experiment::describe_plugins(KeyTable& keys) {
  keys.add("plugins", plugins,
           {.doc = "Shared libraries with networks, layers, data sets, transforms, tasks, metrics, losses, optimizers or sinks; []: none.",
            .is_path = true,
            .may_be_empty = false});
}

void Experiment::describe(KeyTable& keys, const Registries& registries) {
  keys.add("experiment", experiment, {.doc = "Name of the run and of its folder.", .required = true});
  keys.add("seed", seed, {.min = 0, .doc = "Seed of the random choices; dataset.split and the data set synthetic have their own seeds."});
  keys.set_facts("seed", {.is_fixed_on_resume = true});
  keys.add("output_dir", output_dir,
           {.doc = "The run directory is <output_dir>/<experiment>, unless --run-dir names another folder.",
            .is_path = true,
            .may_be_empty = false});
  describe_plugins(keys);
  const auto add = [&keys](const char* name, auto& section, const char* doc, const auto&... registry) {
    keys.add_section(
        name,
        [&](KeyTable& table) {
          if constexpr (sizeof...(registry) == 0) {
            trainer::describe(table, section);
          } else {
            section.describe(table, registry...);
          }
        },
        doc);
  };
  add("model", model, "The network.", registries.models);
  keys.set_facts("model", {.is_fixed_on_resume = true, .affects_features = true, .is_for_predictions = true});
  add("dataset", dataset, "The images and their transforms.", registries);
  keys.set_facts("dataset", {.affects_features = true});
  add("dataloader", dataloader, "How the images are combined into batches.", registries.samplers);
  add("task", task, "What the network learns.", registries.tasks);
  keys.set_facts("task", {.is_for_predictions = true});
  add("loss", loss, "The function that is minimised.", registries.losses);
  add("optimizer", optimizer, "How the parameters are updated.", registries.optimizers);
  add("lr_scheduler", lr_scheduler, "The learning rate during training, as a factor on the optimizer's lr.", registries.lr_schedulers);
  add("training", training, "The training loop.");
  add("runtime", runtime, "The device, the precision and the threads of the computation.");
  add("amp", amp, "Automatic mixed precision.");
  add("distributed", distributed, "How the processes of a run work together.");
  add("validation", validation, "Evaluation on data that is not used for training.");
  add("checkpoint", checkpoint, "The checkpoints from which a run can be resumed.", registries);
  add("logging", logging, "What is logged during training.", registries.sinks);
}

}  // namespace trainer::config
