#pragma once
// The whole experiment file, as one struct.

#include "config/sections/checkpoint.h"
#include "config/sections/dataloader.h"
#include "config/sections/dataset.h"
#include "config/sections/distributed.h"
#include "config/sections/model.h"
#include "config/sections/optimization.h"
#include "config/sections/runtime.h"
#include "config/sections/training.h"

namespace trainer::config {

struct Experiment {
  std::string experiment;
  int64_t seed = 42;
  std::string output_dir = "runs";
  ModelSection model;
  DatasetSection dataset;
  DataLoaderSection dataloader;
  LossSection loss;
  OptimizerSection optimizer;
  LrSchedulerSection lr_scheduler;
  TrainingSection training;
  RuntimeSection runtime;
  AmpSection amp;
  DistributedSection distributed;
  ValidationSection validation;
  CheckpointSection checkpoint;
  LoggingSection logging;

  // The top-level table. `registries` must outlive it.
  void describe(KeyTable& keys, const Registries& registries);
};

}  // namespace trainer::config
