#pragma once
// Components from their YAML text.

#include <string>
#include <vector>

#include "config/reader.h"

namespace trainer::testing {

// The component and options of "{name: …, key: value, …}". Throws UsageError if the name or an option is not valid.
inline ComponentConfig read_component(const RegistryBase& registry, const std::string& yaml) {
  return config::read_component(yaml, "test", registry);
}

// The components of a list: "[name, name: {key: value}]".
inline std::vector<ComponentConfig> read_components(const RegistryBase& registry, const std::string& yaml) {
  return config::read_components(yaml, "test", registry);
}

}  // namespace trainer::testing
