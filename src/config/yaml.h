#pragma once
// Trees of values as YAML, which yaml-cpp parses.

#include <string>
#include <string_view>
#include <vector>

#include "base/keys/key.h"

namespace trainer::config {

// One document of at most 1 MiB without tags, nested at most 32 deep, with at most 1,000 keys in a section; aliases are resolved. Throws
// UsageError with the position.
Node parse_yaml(std::string_view text, const std::string& source);

// Writes a tree as YAML that parse_yaml reads back to the same values, and every other reader of YAML, of version 1.1 (PyYAML) or 1.2, too:
// text is quoted if one of them would read a number, a date, a truth value or null. Short maps of scalars are written on one line.
std::string to_yaml(const Node& node);

// One line, in flow style: for messages and reference tables.
std::string to_inline_yaml(const Node& node);

// A line of a tree as to_yaml writes it.
struct YamlLine {
  std::string text;
  std::string path;  // of the value in it: "optimizer.lr", "dataset.train_transforms[1]"; empty: a section or a list begins
};
std::vector<YamlLine> yaml_lines(const Node& map);

}  // namespace trainer::config
