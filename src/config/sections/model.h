#pragma once

#include "config/catalog.h"

namespace trainer::config {

struct ModelSection {
  Part part;

  void describe(KeyTable& keys, const Catalog& catalog) {
    keys.add_part("name", part, catalog.models, "", "The network; `trainer list models` shows them.");
  }
};

}  // namespace trainer::config
