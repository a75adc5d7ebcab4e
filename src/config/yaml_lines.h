#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/node.h"

namespace trainer::config {

// A line of a tree as to_yaml writes it.
struct YamlLine {
  std::string text;
  std::string path;  // of the value in it: "optimizer.lr", "dataset.train_transforms[1]"; empty: a section or a list begins
};
std::vector<YamlLine> yaml_lines(const Node& map);

// For values that every reader of YAML, of version 1.1 (PyYAML) or 1.2, reads alike. A text is quoted if one of them would read a number, a
// date, a truth value or null. A number with an exponent gets a fraction: "1.0e-05"; what is no number stays as it is.
Node text_node(std::string text);
std::string portable_number(std::string text);

}  // namespace trainer::config
