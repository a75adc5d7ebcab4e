#pragma once
// All that a configuration may name. config/ itself knows no model and no dataset: who loads a file hands the families in.

#include "config/key_table.h"

namespace trainer::config {

// What checkpoint.monitor may name beside `auto`: the metrics of the tasks.
struct MonitorChoices {
  std::vector<std::string> names;
  std::string default_doc;  // what `auto` stands for
};

struct Catalog {
  Family models;
  Family datasets;
  Family transforms;
  Family losses;
  Family optimizers;
  Family lr_schedulers;
  MonitorChoices monitor = {};
};

}  // namespace trainer::config
