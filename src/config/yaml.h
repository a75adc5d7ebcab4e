#pragma once
// YAML text for trees of values; parsed by yaml-cpp.

#include <string>
#include <string_view>

#include "base/keys/key.h"

namespace trainer::config {

// Parses one document of at most 1 MiB without tags and aliases, nested at most 32 levels deep, with at most 1,000 keys in a section.
// Throws UsageError with the position.
Node parse_yaml(std::string_view text, const std::string& source);

// Writes a tree as YAML that parse_yaml and every other YAML reader, of version 1.1 (PyYAML) or 1.2, read back to the same values: text is
// quoted if any such reader would read it as a number, a date, a truth value or null. Each key has its own line, and so has each item of a
// list of maps; the items themselves and all other lists are in flow style.
std::string to_yaml(const Node& node);

// One line, in flow style: for messages and reference tables.
std::string to_inline_yaml(const Node& node);

}  // namespace trainer::config
