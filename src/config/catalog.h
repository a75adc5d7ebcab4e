#pragma once
// All that a configuration may name. config/ itself knows no model and no dataset: who loads a file hands the families in.

#include "config/key_table.h"

namespace trainer::config {

struct Catalog {
  Family models;
  Family datasets;
  Family transforms;
  Family losses;
  Family optimizers;
  Family lr_schedulers;
};

}  // namespace trainer::config
