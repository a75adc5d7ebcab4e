#pragma once
// The task, the loss, the optimizer and its schedule.

#include "train/optim/options.h"
#include "trainer/keys.h"

namespace trainer {

// Beside KeyTable, where the compiler looks for it.
inline void describe(KeyTable& keys, optim::ParameterGroupOptions& options) {
  keys.add("parameters", options.parameters,
           {.doc = "Layers and parameters, by their names or the beginnings of them up to a dot, as in [fc].",
            .required = true,
            .may_be_empty = false});
  keys.add("lr_factor", options.lr_factor, {.min = 0, .doc = "Their learning rate, as a factor on that of the others."});
  keys.add("weight_decay", options.weight_decay, {.min = 0, .doc = "Instead of the optimizer's weight_decay; null: that one."});
}

}  // namespace trainer

namespace trainer::config {

struct TaskSection {
  ComponentConfig component;

  void describe(KeyTable& keys, const RegistryBase& tasks) {
    keys.add_component("name", component, tasks, "classification",
                       "What the network learns, and what is measured; without this key regression with a loss of numbers.");
  }
};

struct LossSection {
  ComponentConfig component;

  void describe(KeyTable& keys, const RegistryBase& losses) {
    keys.add_component("name", component, losses, "cross_entropy", "What is minimised.");
  }
};

struct OptimizerSection {
  ComponentConfig component;
  bool decay_norm_and_bias = true;
  bool skip_zero_grads = false;
  std::vector<optim::ParameterGroupOptions> groups = {};

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
  optim::WarmupOptions warmup = {};

  void describe(KeyTable& keys, const RegistryBase& lr_schedulers) {
    keys.add_component("name", component, lr_schedulers, "constant", "The learning rate as a function of the step.");
    keys.add("warmup_steps", warmup.steps,
             {.min = 0,
              .unit = "steps",
              .doc = "Linear warm-up before the schedule, which then covers the remaining steps; this or warmup_epochs."});
    keys.add("warmup_epochs", warmup.epochs, {.min = 0, .unit = "epochs", .doc = "The same in epochs; fractions allowed."});
    keys.add("warmup_start_factor", warmup.start_factor,
             {.min = 0, .max = 1, .doc = "Part of the learning rate that the warm-up starts from."});
    keys.refuse("warmup_epochs", [this] {
      return warmup.steps > 0 && warmup.epochs > 0 ? "given together with lr_scheduler.warmup_steps; keep one of them" : "";
    });
  }
};

}  // namespace trainer::config
