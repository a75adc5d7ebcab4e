#pragma once

#include "config/key_table.h"

namespace trainer::config {

struct DatasetSection {
  ComponentConfig component;
  std::vector<ComponentConfig> train_transforms;
  std::vector<ComponentConfig> validation_transforms;
  Auto<double> validation_split = {};

  void describe(KeyTable& keys, const RegistryBase& datasets, const RegistryBase& transforms) {
    keys.add_component("name", component, datasets, "", "The data set; `trainer list datasets` shows them.");
    keys.add_components("train_transforms", train_transforms, transforms,
                        "Applied to each training image, in this order; without this key those that the data set's line tells, or none.");
    keys.add_components("validation_transforms", validation_transforms, transforms,
                        "Applied to each validation image; without this key those that the data set's line tells, or none.");
    keys.add(
        "validation_split", validation_split,
        {.min = 0,
         .max = 1,
         .max_excluded = true,
         .doc =
             "Part of the training set that is held out and validated on instead of the validation set, chosen by `seed`; 0: none; auto: "
             "0.1 of a data set that has no validation set, otherwise 0."});
  }
};

}  // namespace trainer::config
