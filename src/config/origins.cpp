#include "config/origins.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "config/load.h"
#include "config/problems.h"
#include "config/reader.h"
#include "config/yaml.h"

namespace trainer::config {
namespace {

// Comments of longer lines are not aligned.
constexpr size_t kMostAligned = 48;

std::vector<YamlLine> lines_of(Experiment& experiment, const Registries& registries) {
  return yaml_lines(write_section([&](KeyTable& keys) { experiment.describe(keys, registries); }));
}

// In part or as a whole.
bool is_overridden(const Node& value) {
  return value.position.line == 0 || std::ranges::any_of(value.items, is_overridden) ||
         std::ranges::any_of(value.members, [](const Node::Member& member) { return is_overridden(member.value); });
}

}  // namespace

std::string to_yaml_with_origins(Experiment& experiment, const Registries& registries) {
  const auto lines = lines_of(experiment, registries);
  // What the values were before they were completed from the data set.
  auto without_check = registries;
  without_check.check = {};
  auto as_given = load_text(to_yaml(experiment.tree), "the experiment", {}, without_check);
  std::map<std::string, std::string> given;
  for (const auto& line : lines_of(as_given, without_check)) given[line.path] = line.text;

  const auto origin_of = [&](const YamlLine& line) -> std::string {
    const auto before = given.find(line.path);
    const bool is_completed = before == given.end() || before->second != line.text;
    const auto* value = find_value(experiment.tree, line.path);
    const std::string completed = line.path.starts_with("task.") ? "from the loss" : "from the data set";
    if (value == nullptr) return is_completed ? completed : "default";
    const auto& position = value->position;
    auto origin = position.line == 0 ? position.source : fmt::format("{}:{}", position.source, position.line);
    if (position.line != 0 && is_overridden(*value)) origin += ", command line";
    return is_completed ? origin + ", " + completed : origin;
  };
  size_t width = 0;
  for (const auto& line : lines) {
    if (!line.path.empty() && line.text.size() <= kMostAligned) width = std::max(width, line.text.size());
  }
  std::string out;
  for (const auto& line : lines) {
    out += line.path.empty() ? line.text + '\n' : fmt::format("{:<{}}  # {}\n", line.text, width, origin_of(line));
  }
  return out;
}

}  // namespace trainer::config
