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

struct TrainingSection {
  // Exactly one of them is given.
  std::optional<int64_t> epochs;
  std::optional<int64_t> steps;
  int64_t accumulation_steps = 1;
  std::optional<double> max_grad_norm;
  std::optional<double> max_minutes;
  OnNonFinite on_non_finite = OnNonFinite::kStop;
  std::optional<EmaSection> ema;

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
  }
};

struct ValidationSection {
  int64_t every_epochs = 1;
  int64_t batch_size = 256;
  TestTimeAugmentation tta = TestTimeAugmentation::kNone;

  void describe(KeyTable& keys) {
    keys.add("every_epochs", every_epochs,
             {.min = 1, .unit = "epochs", .doc = "Epochs between two validations; there is always one after the last epoch."});
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
};

struct LoggingSection {
  int64_t every_steps = 50;
  bool tensorboard = true;
  bool all_ranks = false;

  void describe(KeyTable& keys) {
    keys.add("every_steps", every_steps, {.min = 1, .unit = "steps", .doc = "Optimizer steps between two training lines."});
    keys.add("tensorboard", tensorboard, {.doc = "Write TensorBoard event files too."});
    keys.add("all_ranks", all_ranks, {.doc = "Every rank but the first writes its log to rank_N.log in the run directory."});
  }
};

}  // namespace trainer::config
