#pragma once

#include "config/key_table.h"

namespace trainer::config {

struct DatasetSection {
  ComponentConfig component;
  std::vector<ComponentConfig> train_transforms;
  std::vector<ComponentConfig> validation_transforms;
  double validation_split = 0.0;

  void describe(KeyTable& keys, const RegistryBase& datasets, const RegistryBase& transforms) {
    keys.add_component("name", component, datasets, "", "The data set; `trainer list datasets` shows them.");
    keys.add_components("train_transforms", train_transforms, transforms, "Applied to each training image, in this order.");
    keys.add_components("validation_transforms", validation_transforms, transforms, "Applied to each validation image.");
    keys.add(
        "validation_split", validation_split,
        {.min = 0,
         .max = 1,
         .max_excluded = true,
         .doc = "Part of the training set that is held out and validated on instead of the validation set, chosen by `seed`; 0: none."});
  }
};

}  // namespace trainer::config
