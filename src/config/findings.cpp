#include "config/findings.h"

#include <algorithm>
#include <utility>

#include "config/key_path.h"

namespace trainer::config {

namespace {

// The innermost node at or around `path` that is given, and whether it is the whole path.
std::pair<const Node*, bool> innermost(const Node& root, const std::string& path) {
  const Node* node = &root;
  for (const auto& step : parse_key_path(path).value_or(KeyPath{})) {
    if (step.index) {
      if (*step.index >= node->items.size()) return {node, false};
      node = &node->items[*step.index];
    } else {
      const auto* member = node->find(step.name);
      if (member == nullptr) return {node, false};
      node = &member->value;
    }
  }
  return {node, true};
}

}  // namespace

const Node* find_value(const Node& root, const std::string& path) {
  const auto [node, is_whole] = innermost(root, path);
  return is_whole ? node : nullptr;
}

Position position_of(const Node& root, const std::string& path) { return innermost(root, path).first->position; }

bool Findings::is_given(const std::string& path) const { return find_value(root_, path) != nullptr; }

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
