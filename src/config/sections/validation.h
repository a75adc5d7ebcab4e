#pragma once

#include "train/engine/options.h"
#include "trainer/keys.h"

namespace trainer::config {

inline const Choices<task::TestTimeAugmentation> kTtaChoices = {{"none", task::TestTimeAugmentation::kNone},
                                                                {"flip", task::TestTimeAugmentation::kFlip},
                                                                {"flip_and_shift", task::TestTimeAugmentation::kFlipAndShift}};

}  // namespace trainer::config

namespace trainer {

// Beside KeyTable, where the compiler looks for it.
inline void describe(KeyTable& keys, engine::ValidationOptions& options) {
  keys.add("every_epochs", options.every_epochs,
           {.min = 1,
            .unit = "epochs",
            .doc = "Epochs between two validations; null: none for epochs. There is always one at the end of the training, unless both "
                   "this and every_steps are null: then nothing is validated, and the data set's validation part is not needed."});
  keys.add("every_steps", options.every_steps,
           {.min = 1, .unit = "steps", .doc = "Optimizer steps between two validations within an epoch; null: none."});
  keys.add("batch_size", options.batch_size, {.min = 1, .unit = "images", .doc = "Images in a validation batch."});
  keys.add_choice("tta", options.tta, config::kTtaChoices,
                  {.doc = "Test-time augmentation: the network's outputs are averaged over several views of each image. flip: the image "
                          "and its mirror image; flip_and_shift: also the image shifted by one pixel, down and right or up and left, "
                          "and the mirror images of these; the four count as much as the first two. Validation takes two or six times "
                          "as long."});
}

}  // namespace trainer
