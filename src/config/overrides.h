#pragma once

#include <string>

#include "config/problems.h"
#include "config/yaml.h"

namespace trainer::config {

// Applies "key.path=value" to a tree; the value is YAML and replaces what was there, also a whole section or list. A path may enter a list
// by an index: "dataset.train_transforms[0].random_crop.size=28". An invalid override is added to `problems`.
void apply_override(Node& root, const std::string& text, Problems& problems);

}  // namespace trainer::config
