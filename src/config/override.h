#pragma once

#include <string>

#include "config/problems.h"

namespace trainer::config {

// Applies "key.path=value" to a tree; the value is YAML. A map given for a section is merged into it, unless it names another component
// (`optimizer={name: adamw, lr: 0.001}`): then it replaces the section. An invalid override is added to `problems`.
void apply_override(Node& root, const std::string& text, Problems& problems);

}  // namespace trainer::config
