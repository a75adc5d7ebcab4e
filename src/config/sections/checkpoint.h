#pragma once

#include "config/registries.h"
#include "train/engine/options.h"
#include "trainer/keys.h"

namespace trainer::config {

struct CheckpointSection {
  std::optional<int64_t> every_epochs = 1;
  std::optional<int64_t> every_steps = {};
  int64_t keep_last = 3;
  engine::MonitorOptions best = {};

  void describe(KeyTable& keys, const Registries& registries) {
    using engine::MonitorMode;
    keys.add("every_epochs", every_epochs,
             {.min = 1,
              .unit = "epochs",
              .doc = "Epochs between two checkpoints, saved after the validation; null: none for epochs. There is always one at the end of "
                     "the training, when it is stopped on request, and after a validation that was the best so far."});
    keys.add("every_steps", every_steps,
             {.min = 1, .unit = "steps", .doc = "Optimizer steps between two checkpoints within an epoch; null: none."});
    keys.add("keep_last", keep_last, {.min = 1, .unit = "files", .doc = "Newest checkpoints that are kept, beside the best one."});
    const auto monitor = registries.monitor();
    Choices<std::string> choices = {{"auto", "auto"}};
    for (const auto& name : monitor.names) choices.emplace_back(name, name);
    keys.add_choice("monitor", best.metric, choices, {.doc = "What the best checkpoint is chosen by; auto: " + monitor.default_doc + "."});
    keys.add_choice("mode", best.mode, {{"auto", MonitorMode::kAuto}, {"max", MonitorMode::kMax}, {"min", MonitorMode::kMin}},
                    {.doc = "Whether more or less of it is better; auto: less of a loss, more of all else."});
  }
};

}  // namespace trainer::config
