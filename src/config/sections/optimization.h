#pragma once
// The loss, the optimizer and its schedule.

#include "config/key_table.h"

namespace trainer::config {

struct LossSection {
  ComponentConfig component;

  void describe(KeyTable& keys, const RegistryBase& losses) {
    keys.add_component("name", component, losses, "cross_entropy", "What is minimised.");
  }
};

struct ParameterGroupSection {
  std::vector<std::string> parameters;
  double lr_factor = 1;
  std::optional<double> weight_decay;

  void describe(KeyTable& keys) {
    keys.add("parameters", parameters,
             {.doc = "Layers and parameters, by their names or the beginnings of them up to a dot, as in [fc].",
              .required = true,
              .may_be_empty = false});
    keys.add("lr_factor", lr_factor, {.min = 0, .doc = "Their learning rate, as a factor on that of the others."});
    keys.add("weight_decay", weight_decay, {.min = 0, .doc = "Instead of the optimizer's weight_decay; null: that one."});
  }
};

struct OptimizerSection {
  ComponentConfig component;
  bool decay_norm_and_bias = true;
  bool skip_zero_grads = false;
  std::vector<ParameterGroupSection> groups = {};

  void describe(KeyTable& keys, const RegistryBase& optimizers) {
    keys.add_component("name", component, optimizers, "sgd", "The update rule.");
    keys.add("decay_norm_and_bias", decay_norm_and_bias,
             {.doc = "Apply the optimizer's weight_decay to normalisation weights and to biases too, as PyTorch does; false: only to "
                     "weights with two or more dimensions."});
    keys.add(
        "skip_zero_grads", skip_zero_grads,
        {.doc = "Leave a parameter as it is in a step in which its gradient is zero everywhere: no weight decay, no momentum. Waits for "
                "the device in every step."});
    keys.add_sections("groups", groups,
                      "Parameters with a learning rate or a weight decay of their own, for fine-tuning; of several items that name a "
                      "parameter, the first counts.");
  }
};

struct LrSchedulerSection {
  ComponentConfig component;
  int64_t warmup_steps = 0;
  double warmup_epochs = 0;
  double warmup_start_factor = 0.01;

  void describe(KeyTable& keys, const RegistryBase& lr_schedulers) {
    keys.add_component("name", component, lr_schedulers, "constant", "The learning rate as a function of the step.");
    keys.add("warmup_steps", warmup_steps,
             {.min = 0,
              .unit = "steps",
              .doc = "Linear warm-up before the schedule, which then covers the remaining steps; this or warmup_epochs."});
    keys.add("warmup_epochs", warmup_epochs, {.min = 0, .unit = "epochs", .doc = "The same in epochs; fractions allowed."});
    keys.add("warmup_start_factor", warmup_start_factor,
             {.min = 0, .max = 1, .doc = "Part of the learning rate that the warm-up starts from."});
    keys.refuse("warmup_epochs", [this] {
      return warmup_steps > 0 && warmup_epochs > 0 ? "given together with lr_scheduler.warmup_steps; keep one of them" : "";
    });
  }
};

}  // namespace trainer::config
