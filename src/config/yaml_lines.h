#pragma once

#include <string>
#include <vector>

#include "config/node.h"

namespace trainer::config {

// A line of a tree as to_yaml writes it.
struct YamlLine {
  std::string text;
  std::string path;  // of the value in it: "optimizer.lr", "dataset.train_transforms[1]"; empty: a section or a list begins
};
std::vector<YamlLine> yaml_lines(const Node& map);

}  // namespace trainer::config
