#pragma once

#include "train/engine/options.h"
#include "train/optim/options.h"
#include "trainer/keys.h"

namespace trainer {

// Beside KeyTable, where the compiler looks for it.
inline void describe(KeyTable& keys, optim::EmaOptions& options) {
  keys.add("decay", options.decay, {.min = 0, .max = 1, .max_excluded = true, .doc = "Part of the average that is kept in each step."});
  keys.add("warmup", options.warmup,
           {.doc = "Keep less at first, (1 + n) / (10 + n) in the n-th step, so that the beginning is soon forgotten."});
}

inline void describe(KeyTable& keys, engine::EarlyStoppingOptions& options) {
  keys.add("patience", options.patience,
           {.min = 1, .unit = "validations", .doc = "The training ends after so many validations in a row that were not better."});
  keys.add("min_delta", options.min_delta,
           {.min = 0, .doc = "A validation is better if it differs by more than this from the best one, in the metric's own unit."});
}

}  // namespace trainer

namespace trainer::config {

struct TrainingSection {
  // Exactly one of them is given.
  std::optional<int64_t> epochs;
  std::optional<int64_t> steps;
  int64_t accumulation_steps = 1;
  std::optional<double> max_grad_norm;
  std::optional<double> max_minutes;
  engine::OnNonFinite on_non_finite = engine::OnNonFinite::kStop;
  std::optional<optim::EmaOptions> ema;
  std::optional<engine::EarlyStoppingOptions> early_stopping;
  std::optional<int64_t> overfit_batches;
  bool extend = false;

  void describe(KeyTable& keys) {
    keys.add("epochs", epochs, {.min = 1, .unit = "epochs", .doc = "Passes over the training set. Give this or `steps`."});
    keys.add("steps", steps,
             {.min = 1,
              .unit = "steps",
              .doc = "Optimizer steps, in as many epochs as they need; the training ends after them, also within an epoch. To replace the "
                     "`epochs` of a file on the command line, add training.epochs=null."});
    keys.refuse("epochs", [this] { return epochs || steps ? "" : "missing; give this or training.steps"; });
    keys.refuse("steps", [this] { return epochs && steps ? "given together with training.epochs; set one of them to null" : ""; });
    keys.add("accumulation_steps", accumulation_steps,
             {.min = 1,
              .unit = "micro-steps",
              .doc = "Micro-steps whose gradients are joined into one optimizer step. A shorter group at an epoch's end is averaged over "
                     "the images that it has."});
    keys.add("max_grad_norm", max_grad_norm,
             {.min = 0, .min_excluded = true, .doc = "Scale the gradient down to this 2-norm when it is longer; null: never."});
    keys.add("max_minutes", max_minutes,
             {.min = 0,
              .min_excluded = true,
              .unit = "minutes",
              .doc = "After so long since its start the process stops as on request: saved, with exit code 75; null: never."});
    keys.add_choice("on_non_finite", on_non_finite, {{"stop", engine::OnNonFinite::kStop}, {"skip", engine::OnNonFinite::kSkip}},
                    {.doc = "A step whose loss or gradients are not finite is skipped and saved for `trainer replay`; stop: and the run "
                            "ends; skip: and the run continues, up to ten times in a row. Skipping waits for the GPU in each step. What "
                            "amp.dtype: float16 skips to find its scale is neither."});
    keys.add_section("ema", ema,
                     "An exponential moving average of the parameters over the steps, validated beside the parameters themselves; {}: with "
                     "these defaults; null: none.");
    keys.add_section("early_stopping", early_stopping,
                     "End the training when the metric of checkpoint.monitor does not get better any more; {}: with these defaults; null: "
                     "never.");
    keys.add("overfit_batches", overfit_batches,
             {.min = 1,
              .unit = "steps",
              .doc = "To test a network and its settings: train on the images of so many steps only, chosen by `seed`, and validate on the "
                     "same images; the loss must come close to zero. null: on the whole training set."});
    keys.add("extend", extend,
             {.doc = "Continue a finished run, although more has changed than a greater number of epochs or steps, such as the learning "
                     "rate or its schedule."});
  }
};

}  // namespace trainer::config
