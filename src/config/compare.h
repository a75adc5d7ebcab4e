#pragma once

#include <string>
#include <vector>

#include "config/yaml.h"

namespace trainer::config {

// A value that differs between two trees, as inline YAML; "unset" stands for a missing key.
struct Difference {
  std::string key;  // "optimizer.lr"
  std::string then;
  std::string now;
};

std::vector<Difference> differences(const Node& then, const Node& now);

// "optimizer.lr: 0.1, not 0.2", with the current value first.
std::string to_string(const Difference& difference);
// All differences, separated by "; ".
std::string to_string(const std::vector<Difference>& differences);

}  // namespace trainer::config
