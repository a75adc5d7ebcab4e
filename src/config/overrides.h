#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "config/problems.h"
#include "config/yaml.h"

namespace trainer::config {

// Applies "key.path=value" to a tree; the value is YAML and replaces the previous one, which may be a whole section or list. A path may
// enter a list by an index: "dataset.train_transforms[0].random_crop.size=28". An invalid override is added to `problems`.
void apply_override(Node& root, const std::string& text, Problems& problems);

// A step of a key path: into a section by a name, or into a list by an index.
struct KeyStep {
  std::string name;             // empty for an index
  std::optional<size_t> index;  // from 0
  std::string path;             // from the root to this step inclusive
};
using KeyPath = std::vector<KeyStep>;

// The steps of "dataset.train_transforms[0].random_crop.size"; nullopt if the text has another form.
std::optional<KeyPath> parse_key_path(const std::string& text);

}  // namespace trainer::config
