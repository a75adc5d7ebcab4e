#include "config/sections.h"

namespace trainer::config {

void OptimizerSection::describe(KeyTable& keys, const RegistryBase& optimizers) {
  keys.add_component("name", component, optimizers, "sgd", "The update rule.");
  keys.add("decay_norm_and_bias", decay_norm_and_bias,
           {.doc = "Apply the optimizer's weight_decay also to normalisation weights and to biases, as PyTorch does; false: only to "
                   "weights with two or more dimensions."});
  keys.add("skip_zero_grads", skip_zero_grads,
           {.doc = "Skip the update of a parameter, with its weight decay and momentum, in a step in which its gradient is zero "
                   "everywhere. This check waits for the GPU in every step."});
  keys.add(
      "layer_decay", layer_decay,
      {.min = 0,
       .max = 1,
       .min_excluded = true,
       .doc = "The learning rate of each layer or block is multiplied by this factor once for every layer or block after it, because "
              "fine-tuning should change the first layers least. Usual values are 0.65 to 0.9; null: all have the same learning rate."});
  keys.add_sections("groups", groups,
                    "Parameters with their own learning rate or weight decay, for fine-tuning; if several items name a parameter, the "
                    "first one applies.");
  for (const char* key : {"name", "layer_decay", "groups"}) keys.set_facts(key, {.is_fixed_on_resume = true});
}

void LrSchedulerSection::describe(KeyTable& keys, const RegistryBase& lr_schedulers) {
  keys.add_component("name", component, lr_schedulers, "constant", "The learning rate as a function of the step.");
  keys.add("warmup_steps", warmup.steps,
           {.min = 0,
            .unit = "steps",
            .doc = "Steps of linear warm-up, not for onecycle. cosine, linear and polynomial cover the steps after it. Set this or "
                   "warmup_epochs."});
  keys.add("warmup_epochs", warmup.epochs,
           {.min = 0, .unit = "epochs", .doc = "Epochs of linear warm-up; fractions are allowed. Set this or warmup_steps."});
  keys.add("warmup_start_factor", warmup.start_factor,
           {.min = 0, .max = 1, .doc = "Factor by which the learning rate is multiplied at the start of the warm-up."});
  keys.refuse("warmup_epochs", [this] {
    return warmup.steps > 0 && warmup.epochs > 0 ? "given together with lr_scheduler.warmup_steps; keep one of them" : "";
  });
}

void TrainingSection::describe(KeyTable& keys) {
  keys.add("epochs", epochs, {.min = 1, .unit = "epochs", .doc = "Passes over the training set. Set this or `steps`."});
  keys.add("steps", steps,
           {.min = 1,
            .unit = "steps",
            .doc = "Optimizer steps, in as many epochs as needed; training ends after them, even within an epoch. To replace the "
                   "`epochs` of a file on the command line, add training.epochs=null."});
  keys.add("mixup_off_epochs", mixup_off_epochs,
           {.min = 0,
            .unit = "epochs",
            .doc = "Number of epochs at the end of training without dataset.batch_transforms, so that training ends on unmixed images."});
  keys.refuse("mixup_off_epochs", [this]() -> std::string {
    if (mixup_off_epochs == 0) return "";
    if (!epochs) return "needs training.epochs instead of training.steps";
    return mixup_off_epochs > *epochs ? "is more than training.epochs; choose fewer epochs" : "";
  });
  keys.add(
      "cache_features", cache_features,
      {.doc = "Compute the frozen layers (model.freeze) once for each image instead of in each epoch, and keep the results in "
              "${TRAINER_HOME:-${XDG_CACHE_HOME:-~/.cache}/trainer}/features for this and later runs with the same weights, images and "
              "transforms. "
              "dataset.train_transforms must not be random; by default they are dataset.validation_transforms. Dropout and drop_path of "
              "the frozen layers are off."});
  keys.add("unfreeze_after", unfreeze_after,
           {.min = 1,
            .unit = "epochs",
            .doc = "Number of epochs after which the parameters in model.freeze are trained too; the running statistics of their batch "
                   "normalisation stay unchanged, because the statistics of a few images are inaccurate. null: never."});
  keys.refuse("unfreeze_after", [this]() -> std::string {
    if (!unfreeze_after) return "";
    if (cache_features)
      return "given together with training.cache_features; train the frozen network first, then start another run with model.init_from";
    return epochs && *unfreeze_after >= *epochs ? "has no effect, because it is not less than training.epochs; choose fewer epochs" : "";
  });
  keys.refuse("epochs", [this] { return epochs || steps ? "" : "missing; set training.epochs or training.steps"; });
  keys.refuse("steps", [this] { return epochs && steps ? "given together with training.epochs; set one of them to null" : ""; });
  keys.add("accumulation_steps", accumulation_steps,
           {.min = 1,
            .unit = "micro-steps",
            .doc = "Micro-steps whose gradients are accumulated for one optimizer step. If fewer micro-steps are left at the end of an "
                   "epoch, the gradient is averaged over their images."});
  keys.add("max_grad_norm", max_grad_norm,
           {.min = 0, .min_excluded = true, .doc = "Scale the gradient down to this 2-norm if its norm is larger; null: never."});
  keys.add("max_minutes", max_minutes,
           {.min = 0,
            .min_excluded = true,
            .unit = "minutes",
            .doc = "Time limit, from the start of the process, after which the run saves a checkpoint and stops with exit code 75, as "
                   "after a stop request. null: none."});
  keys.add_choice("on_non_finite", on_non_finite, {{"stop", engine::OnNonFinite::kStop}, {"skip", engine::OnNonFinite::kSkip}},
                  {.doc = "What to do after a step whose loss or gradients are not finite; the step is skipped, and the first three such "
                          "steps are saved for `trainer replay`. stop: end the run; skip: continue, but end the run at the tenth such "
                          "step in a row. With skip, every step waits for the GPU. Steps that are skipped to find the loss scale "
                          "(amp.dtype: float16) do not count."});
  keys.add_section("ema", ema,
                   "An exponential moving average of the parameters over the steps, validated in addition to the parameters themselves; "
                   "{}: with the defaults of its keys; null: none.");
  keys.add_section("early_stopping", early_stopping,
                   "End training when the metric of checkpoint.monitor stops improving; {}: with the defaults of its keys; null: never.");
  keys.add("overfit_batches", overfit_batches,
           {.min = 1,
            .unit = "steps",
            .doc = "To test a network and its settings: train only on the images of this many steps, chosen by `seed`, and validate on "
                   "the same images; the loss must come close to zero. null: train on the whole training set."});
  for (const char* key : {"unfreeze_after", "overfit_batches"}) keys.set_facts(key, {.is_fixed_on_resume = true});
  keys.add("extend", extend,
           {.doc = "true: continue a finished run even if its configuration has changed in more than the number of epochs or steps, for "
                   "example in the learning rate or its schedule."});
}

}  // namespace trainer::config

namespace trainer {

void describe(KeyTable& keys, optim::ParameterGroupOptions& options) {
  keys.add(
      "parameters", options.parameters,
      {.doc = "Names of layers and parameters. The name of a layer stands for everything in it: [layer1] includes layer1.0.conv1.weight.",
       .required = true,
       .may_be_empty = false});
  keys.add("lr_factor", options.lr_factor, {.min = 0, .doc = "Factor by which the learning rate of these parameters is multiplied."});
  keys.add("weight_decay", options.weight_decay,
           {.min = 0, .doc = "Weight decay of these parameters; null: the optimizer's weight_decay."});
}

void describe(KeyTable& keys, engine::SmallerImages& options) {
  keys.add("size", options.size, {.min = 1, .unit = "pixels", .doc = "Length of the shorter edge of the scaled images.", .required = true});
  keys.add("until", options.until,
           {.min = 0,
            .max = 1,
            .min_excluded = true,
            .max_excluded = true,
            .doc = "This size is used in epochs that end before this fraction of training.epochs.",
            .required = true});
}

void describe(KeyTable& keys, optim::EmaOptions& options) {
  keys.add("decay", options.decay,
           {.min = 0, .max = 1, .max_excluded = true, .doc = "Weight of the old average in each update except the first."});
  keys.add("warmup", options.warmup,
           {.doc = "Limit the decay to n / (9 + n) after n updates, so that the average soon forgets the first values."});
}

void describe(KeyTable& keys, engine::EarlyStoppingOptions& options) {
  keys.add("patience", options.patience,
           {.min = 1, .unit = "validations", .doc = "Number of consecutive validations without improvement after which training ends."});
  keys.add("min_delta", options.min_delta,
           {.min = 0, .doc = "A validation is an improvement if its metric is better than the best so far by more than this value."});
}

}  // namespace trainer
