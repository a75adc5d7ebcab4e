#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/problems.h"
#include "trainer/keys.h"

namespace trainer::config {

// Reads `node`, a map, into the members to which `describe` binds keys. Keys that are unknown, missing, of the wrong type or out of range,
// and the findings of the section's own checks, are added to `problems`. `path` is the section's key path, empty at the top.
void read_section(const Node& node, const std::function<void(KeyTable&)>& describe, const std::string& path, Problems& problems);

// A component in YAML, "{name: sgd, lr: 0.1}" or only its name; `source` names the text in messages. Throws UsageError with all problems.
ComponentConfig read_component(const std::string& yaml, const std::string& source, const RegistryBase& registry);
// The components of a list in YAML, "[name, name: {key: value}]". The other arguments and the errors are those of read_component().
std::vector<ComponentConfig> read_components(const std::string& yaml, const std::string& source, const RegistryBase& registry);

// The tree of every key's current value, in the order of the tables. `facts`: of keys that have none of their own.
Node write_section(const std::function<void(KeyTable&)>& describe, KeyFacts facts = {});

}  // namespace trainer::config
