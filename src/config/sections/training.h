#pragma once

#include "config/key_table.h"

namespace trainer::config {

enum class OnNonFinite { kStop, kSkip };
enum class TestTimeAugmentation { kNone, kFlip, kFlipAndShift };

struct EmaSection {
  double decay = 0.999;
  bool warmup = true;

  void describe(KeyTable& keys) {
    keys.add("decay", decay, {.min = 0, .max = 1, .max_excluded = true, .doc = "Part of the average that is kept in each step."});
    keys.add("warmup", warmup,
             {.doc = "Keep less at first, (1 + n) / (10 + n) in the n-th step, so that the beginning is soon forgotten."});
  }
};

struct EarlyStoppingSection {
  int64_t patience = 10;
  double min_delta = 0;

  void describe(KeyTable& keys) {
    keys.add("patience", patience,
             {.min = 1, .unit = "validations", .doc = "The training ends after so many validations in a row that were not better."});
    keys.add("min_delta", min_delta,
             {.min = 0, .doc = "A validation is better if it differs by more than this from the best one, in the metric's own unit."});
  }
};

struct TrainingSection {
  // Exactly one of them is given.
  std::optional<int64_t> epochs;
  std::optional<int64_t> steps;
  int64_t accumulation_steps = 1;
  std::optional<double> max_grad_norm;
  std::optional<double> max_minutes;
  OnNonFinite on_non_finite = OnNonFinite::kStop;
  std::optional<EmaSection> ema;
  std::optional<EarlyStoppingSection> early_stopping;
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
    keys.add_choice("on_non_finite", on_non_finite, {{"stop", OnNonFinite::kStop}, {"skip", OnNonFinite::kSkip}},
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

struct ValidationSection {
  std::optional<int64_t> every_epochs = 1;
  std::optional<int64_t> every_steps = {};
  int64_t batch_size = 256;
  TestTimeAugmentation tta = TestTimeAugmentation::kNone;

  void describe(KeyTable& keys) {
    keys.add("every_epochs", every_epochs,
             {.min = 1,
              .unit = "epochs",
              .doc = "Epochs between two validations; null: none for epochs. There is always one at the end of the training, unless both "
                     "this and every_steps are null: then nothing is validated, and the data set's validation part is not needed."});
    keys.add("every_steps", every_steps,
             {.min = 1, .unit = "steps", .doc = "Optimizer steps between two validations within an epoch; null: none."});
    keys.add("batch_size", batch_size, {.min = 1, .unit = "images", .doc = "Images in a validation batch."});
    keys.add_choice("tta", tta,
                    {{"none", TestTimeAugmentation::kNone},
                     {"flip", TestTimeAugmentation::kFlip},
                     {"flip_and_shift", TestTimeAugmentation::kFlipAndShift}},
                    {.doc = "Test-time augmentation: the network's outputs are averaged over several views of each image. flip: the image "
                            "and its mirror image; flip_and_shift: also the image shifted by one pixel, down and right or up and left, "
                            "and the mirror images of these; the four count as much as the first two. Validation takes two or six times "
                            "as long."});
  }

  bool is_off() const { return !every_epochs && !every_steps; }
};

struct LoggingSection {
  int64_t every_steps = 50;
  bool tensorboard = true;
  bool all_ranks = false;
  std::optional<int64_t> histograms_every_epochs = {};
  std::vector<int64_t> profile_steps = {};
  std::vector<std::string> command = {};

  void describe(KeyTable& keys) {
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
  }
};

}  // namespace trainer::config
