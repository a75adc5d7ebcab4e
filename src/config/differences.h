#pragma once
// The values of experiments, and what differs between two experiments.

#include <string>
#include <vector>

#include "config/experiment.h"
#include "config/yaml.h"

namespace trainer::config {

// A value of a tree, as inline YAML.
struct Value {
  std::string key;  // "optimizer.lr"
  std::string text;
  KeyFacts facts = {};
};

// The values of all keys that are not sections, in the order of the tree. A tree that was only parsed has no facts.
std::vector<Value> values_of(const Node& tree);
std::vector<Value> values_of(const Experiment& experiment, const Registries& registries);

// A line "optimizer.lr: 0.1  # x.yaml:12" for each value with its origin: a line of a file, the command line, the default, the data set, or
// the loss. `experiment` must be unchanged since it was loaded.
std::string values_with_origins(const Experiment& experiment, const Registries& registries);

// A value that differs; "unset" stands for a missing key.
struct Difference {
  std::string key;
  std::string then;
  std::string now;
  KeyFacts facts = {};
};

std::vector<Difference> differences(const std::vector<Value>& then, const std::vector<Value>& now);

// "optimizer.lr: 0.1, not 0.2", with the current value first.
std::string to_string(const Difference& difference);
// All differences, separated by "; ".
std::string to_string(const std::vector<Difference>& differences);

}  // namespace trainer::config
