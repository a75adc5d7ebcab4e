#include "config/differences.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "config/load.h"
#include "config/problems.h"

namespace trainer::config {
namespace {

void add_values(const Node& node, const std::string& key, std::vector<Value>& values) {
  if (node.kind != Node::Kind::kMap || node.members.empty()) {
    values.push_back({key, to_inline_yaml(node), node.facts});
    return;
  }
  for (const auto& member : node.members) add_values(member.value, child_path(key, member.name), values);
}

// The first of the values that `matches`, or nullptr.
template <class Matches>
const Value* find(const std::vector<Value>& values, const Matches& matches) {
  const auto found = std::ranges::find_if(values, matches);
  return found == values.end() ? nullptr : &*found;
}

const Value* find_key(const std::vector<Value>& values, const std::string& key) {
  return find(values, [&](const Value& value) { return value.key == key; });
}

bool is_below(const std::string& key, const Value& section) { return key.starts_with(section.key + '.'); }

}  // namespace

std::vector<Value> values_of(const Node& tree) {
  std::vector<Value> values;
  add_values(tree, "", values);
  return values;
}

std::vector<Value> values_of(const Experiment& experiment, const Registries& registries) {
  return values_of(resolved_tree(experiment, registries));
}

std::string values_with_origins(const Experiment& experiment, const Registries& registries) {
  // A value that registries.complete has changed is from the data set or the loss.
  auto incomplete = registries;
  incomplete.complete = {};
  incomplete.check = {};
  const auto given = values_of(load_tree(experiment.tree, incomplete), incomplete);
  std::string lines;
  for (const auto& [key, text, facts] : values_of(experiment, registries)) {
    const auto* before = find_key(given, key);
    std::vector<std::string> origins;
    if (const auto* value = find_value(experiment.tree, key)) {
      const auto& [source, line, column] = value->position;
      origins.push_back(line == 0 ? source : fmt::format("{}:{}", source, line));
      if (line != 0 && experiment.is_on_command_line(key)) origins.emplace_back("command line");
    }
    if (before == nullptr || before->text != text) origins.emplace_back(key.starts_with("task.") ? "from the loss" : "from the data set");
    lines += fmt::format("{}: {}  # {}\n", key, text, origins.empty() ? "default" : join(origins, ", "));
  }
  return lines;
}

std::vector<Difference> differences(const std::vector<Value>& then, const std::vector<Value>& now) {
  std::vector<Difference> found;
  // A section that is null on one side differs in the keys of the other side.
  const auto is_section_in = [](const std::vector<Value>& values, const Value& value) {
    return find(values, [&](const Value& other) { return is_below(other.key, value); }) != nullptr;
  };
  for (const auto& value : then) {
    const auto* current = find_key(now, value.key);
    if (current == nullptr ? is_section_in(now, value) : current->text == value.text) continue;
    const auto* known = current != nullptr ? current : find(now, [&](const Value& section) { return is_below(value.key, section); });
    found.push_back({value.key, value.text, current == nullptr ? "unset" : current->text, (known == nullptr ? value : *known).facts});
  }
  for (const auto& value : now) {
    if (find_key(then, value.key) == nullptr && !is_section_in(then, value)) found.push_back({value.key, "unset", value.text, value.facts});
  }
  return found;
}

std::string to_string(const Difference& difference) {
  return fmt::format("{}: {}, not {}", difference.key, difference.now, difference.then);
}

std::string to_string(const std::vector<Difference>& differences) {
  std::vector<std::string> texts;
  for (const auto& difference : differences) texts.push_back(to_string(difference));
  return join(texts, "; ");
}

}  // namespace trainer::config
