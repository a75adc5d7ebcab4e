#include "config/findings.h"

#include <algorithm>

#include "config/key_path.h"

namespace trainer::config {

Position position_of(const Node& root, const std::string& path) {
  const Node* node = &root;
  Position position = root.position;
  for (const auto& step : parse_key_path(path).value_or(KeyPath{})) {
    if (step.index) {
      if (*step.index >= node->items.size()) break;
      node = &node->items[*step.index];
    } else {
      const auto* member = node->find(step.name);
      if (member == nullptr) break;
      node = &member->value;
    }
    position = node->position;
  }
  return position;
}

bool Findings::are_readable(std::initializer_list<const char*> sections) const {
  return std::ranges::all_of(sections, [this](const char* section) { return problems_.is_readable(section); });
}

bool Findings::are_consistent(std::initializer_list<const char*> sections) const {
  return std::ranges::all_of(sections, [this](const char* section) { return problems_.is_consistent(section); });
}

void Findings::refuse(const std::string& path, const std::string& what) {
  problems_.add_contradiction(position_of(root_, path), path, what);
}

void Findings::warn(const std::string& path, const std::string& what) { problems_.add_warning(position_of(root_, path), path, what); }

}  // namespace trainer::config
