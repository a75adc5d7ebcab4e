#include "config/sections.h"

namespace trainer::config {

void CheckpointSection::describe(KeyTable& keys, const Registries& registries) {
  using engine::MonitorMode;
  keys.add("every_epochs", every_epochs,
           {.min = 1,
            .unit = "epochs",
            .doc = "Epochs between two checkpoints, saved after the validation; null: none at the end of epochs. A checkpoint is always "
                   "saved at the end of training, after a stop request, and after the best validation so far."});
  keys.add("every_steps", every_steps,
           {.min = 1, .unit = "steps", .doc = "Optimizer steps between two checkpoints within an epoch; null: none within epochs."});
  keys.add("keep_last", keep_last,
           {.min = 1, .unit = "files", .doc = "Number of newest checkpoints that are kept, in addition to the best one."});
  const auto monitor = registries.monitor();
  Choices<std::string> choices = {{"auto", "auto"}};
  for (const auto& name : monitor.names) choices.emplace_back(name, name);
  keys.add_choice("monitor", best.metric, choices,
                  {.doc = "The metric by which the best checkpoint is chosen; auto: " + monitor.default_doc + "."});
  keys.add_choice("mode", best.mode, {{"auto", MonitorMode::kAuto}, {"max", MonitorMode::kMax}, {"min", MonitorMode::kMin}},
                  {.doc = "Whether a higher or a lower value is better; auto: what the metric defines, such as lower for a loss."});
}

void LoggingSection::describe(KeyTable& keys, const RegistryBase& of_sinks) {
  keys.add("every_steps", every_steps, {.min = 1, .unit = "steps", .doc = "Optimizer steps between two lines with training metrics."});
  keys.add("tensorboard", tensorboard, {.doc = "Also write TensorBoard event files."});
  keys.add("all_ranks", all_ranks, {.doc = "true: each rank N except rank 0 also writes a log, to rank_N.log in the run directory."});
  keys.add("histograms_every_epochs", histograms_every_epochs,
           {.min = 1,
            .unit = "epochs",
            .doc = "Epochs between two sets of TensorBoard histograms of the parameters and their gradients; null: none."});
  keys.refuse("histograms_every_epochs", [this] {
    return histograms_every_epochs && !tensorboard
               ? "needs logging.tensorboard: true, because histograms are only written to TensorBoard files"
               : "";
  });
  keys.add("profile_steps", profile_steps,
           {.min = 0,
            .unit = "steps",
            .doc = "Two numbers [A, B]: steps A + 1 to B are profiled on rank 0. A table of the most expensive operations is logged, and "
                   "profile.json, for Perfetto or chrome://tracing, is written to the run directory; []: none."});
  keys.refuse("profile_steps", [this] {
    const bool is_range = profile_steps.size() == 2 && profile_steps[0] < profile_steps[1];
    return profile_steps.empty() || is_range ? "" : "expected two numbers, the first less than the second, as in [10, 20]";
  });
  keys.add("command", command,
           {.doc = "A program and its arguments; it receives each event of the run on its standard input, as a line of JSON like those "
                   "of metrics.jsonl; []: none.",
            .may_be_empty = false});
  keys.add_components("sinks", sinks, of_sinks, "Additional sinks, defined by plug-ins (key plugins), that receive the events of the run.");
}

}  // namespace trainer::config

namespace trainer {

void describe(KeyTable& keys, engine::ValidationOptions& options) {
  keys.add("every_epochs", options.every_epochs,
           {.min = 1,
            .unit = "epochs",
            .doc = "Epochs between two validations; null: none at the end of epochs. The end of training is always validated, unless both "
                   "every_epochs and every_steps are null: then there are no validations, and the data set needs no validation part."});
  keys.add("every_steps", options.every_steps,
           {.min = 1, .unit = "steps", .doc = "Optimizer steps between two validations within an epoch; null: none within epochs."});
  keys.add("batch_size", options.batch_size, {.min = 1, .unit = "images", .doc = "Images per validation batch."});
  keys.add_choice(
      "tta", options.tta, config::kTtaChoices,
      {.doc = "Test-time augmentation: the network's outputs are averaged over several views of each image. flip: the image and its mirror "
              "image; flip_and_shift: also the image shifted by one pixel down and right, the image shifted up and left, and the mirror "
              "images of both; these four together have the same weight as the first two. Validation takes two or six times as long."});
}

}  // namespace trainer
