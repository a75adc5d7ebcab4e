#pragma once

#include "trainer/component.h"

namespace trainer::config {

struct LoggingSection {
  int64_t every_steps = 50;
  bool tensorboard = true;
  bool all_ranks = false;
  std::optional<int64_t> histograms_every_epochs = {};
  std::vector<int64_t> profile_steps = {};
  std::vector<std::string> command = {};
  std::vector<ComponentConfig> sinks = {};

  void describe(KeyTable& keys, const RegistryBase& of_sinks) {
    keys.add("every_steps", every_steps, {.min = 1, .unit = "steps", .doc = "Optimizer steps between two training lines."});
    keys.add("tensorboard", tensorboard, {.doc = "Write TensorBoard event files too."});
    keys.add("all_ranks", all_ranks, {.doc = "Every rank but the first writes its log to rank_N.log in the run directory."});
    keys.add("histograms_every_epochs", histograms_every_epochs,
             {.min = 1,
              .unit = "epochs",
              .doc = "Epochs between two sets of histograms of the parameters and their gradients, for TensorBoard; null: none."});
    keys.refuse("histograms_every_epochs", [this] {
      return histograms_every_epochs && !tensorboard ? "needs logging.tensorboard: true, because they are written for TensorBoard" : "";
    });
    keys.add("profile_steps", profile_steps,
             {.min = 0,
              .unit = "steps",
              .doc = "Two numbers: the steps after the first, up to the second, are profiled on rank 0: a table of the dearest operations "
                     "in the log, and profile.json, for Perfetto or chrome://tracing, in the run directory; []: none."});
    keys.refuse("profile_steps", [this] {
      const bool is_range = profile_steps.size() == 2 && profile_steps[0] < profile_steps[1];
      return profile_steps.empty() || is_range ? "" : "expected two numbers, the first less than the second, as in [10, 20]";
    });
    keys.add("command", command,
             {.doc = "A program and its arguments, which gets each event of the run on its standard input, as a line of JSON like those of "
                     "metrics.jsonl; []: none.",
              .may_be_empty = false});
    keys.add_components("sinks", sinks, of_sinks, "What else gets the events of the run, each a sink that one of `plugins` adds.");
  }
};

}  // namespace trainer::config
