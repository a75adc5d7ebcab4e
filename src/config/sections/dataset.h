#pragma once

#include "config/catalog.h"

namespace trainer::config {

struct DatasetSection {
  Part part;
  std::vector<Part> train_transforms;
  std::vector<Part> validation_transforms;
  double validation_split = 0.0;

  void describe(KeyTable& keys, const Catalog& catalog) {
    keys.add_part("name", part, catalog.datasets, "", "The data set; `trainer list datasets` shows them.");
    keys.add_parts("train_transforms", train_transforms, catalog.transforms, "Applied to each training image, in this order.");
    keys.add_parts("validation_transforms", validation_transforms, catalog.transforms, "Applied to each validation image.");
    keys.add(
        "validation_split", validation_split,
        {.min = 0,
         .max = 1,
         .max_excluded = true,
         .doc = "Part of the training set that is held out and validated on instead of the validation set, chosen by `seed`; 0: none."});
  }
};

}  // namespace trainer::config
