#pragma once
// The whole experiment file, as one struct.

#include "base/keys/key.h"
#include "config/registries.h"
#include "config/sections.h"

namespace trainer::config {

struct Experiment {
  std::string experiment;
  int64_t seed = 42;
  std::string output_dir = "runs";
  std::vector<std::string> plugins = {};
  ModelSection model;
  DatasetSection dataset;
  DataLoaderSection dataloader;
  TaskSection task;
  LossSection loss;
  OptimizerSection optimizer;
  LrSchedulerSection lr_scheduler;
  TrainingSection training;
  RuntimeSection runtime;
  AmpSection amp;
  DistributedSection distributed;
  engine::ValidationOptions validation;
  CheckpointSection checkpoint;
  LoggingSection logging;

  // Of the file that it was read from: one line for each key that can be used but is hardly meant so, and the tree with all positions.
  std::vector<std::string> warnings = {};
  Node tree = {};

  // Where the key was given, and its path, to begin a message with: "x.yaml:3:14: training.epochs".
  std::string place_of(const std::string& path) const;
  // Reports contradictions between keys of different sections.
  void check(Findings& findings) const;
  // Adds the key of `plugins`, which has to be read before the table below, whose choices they add to.
  void describe_plugins(KeyTable& keys);
  // The top-level table. `registries` must outlive it.
  void describe(KeyTable& keys, const Registries& registries);
};

}  // namespace trainer::config
