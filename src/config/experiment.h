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

  // One line for each key that is valid but probably unintended.
  std::vector<std::string> warnings = {};
  // One line for each key that was ignored (UnknownKeys::kIgnoreUnlessNeeded).
  std::vector<std::string> ignored_keys = {};
  // The experiment file, merged with its base files and the overrides; with the position of each value.
  Node tree = {};

  // The position and the path of a key, for the beginning of a message: "x.yaml:3:14: training.epochs".
  std::string place_of(const std::string& path) const;
  // Whether the value of this key, or a part of it, is from the command line.
  bool is_on_command_line(const std::string& path) const;
  // Checks the name of the experiment, and reports contradictions between keys of different sections.
  void check(Findings& findings) const;
  // Adds only the key `plugins`, which must be read before all other keys, because plug-ins add choices to the others.
  void describe_plugins(KeyTable& keys);
  // Adds the keys of the top level. `registries` must outlive `keys`.
  void describe(KeyTable& keys, const Registries& registries);
};

}  // namespace trainer::config
