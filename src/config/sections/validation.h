#pragma once

#include "base/keys/key_table.h"
#include "task/options.h"

namespace trainer::config {

struct ValidationSection {
  std::optional<int64_t> every_epochs = 1;
  std::optional<int64_t> every_steps = {};
  int64_t batch_size = 256;
  task::TestTimeAugmentation tta = task::TestTimeAugmentation::kNone;

  void describe(KeyTable& keys) {
    using task::TestTimeAugmentation;
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

}  // namespace trainer::config
