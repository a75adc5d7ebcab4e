#include "session/earlier_configuration.h"

#include "config/yaml.h"

namespace trainer::session {

std::vector<std::string> overrides_of_earlier_version(const std::string& text, const std::string& source) {
  const auto tree = config::parse_yaml(text, source);
  const auto* dataset = tree.find("dataset");
  if (dataset == nullptr || dataset->value.find("stratify") != nullptr) return {};
  const auto* part = dataset->value.find("validation_split");
  const bool holds_out = part != nullptr && part->value.text != "0";
  return holds_out ? std::vector<std::string>{"dataset.stratify=false"} : std::vector<std::string>{};
}

}  // namespace trainer::session
