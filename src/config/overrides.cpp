#include "config/overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

const Position kCommandLine{"command line", 0, 0};
// Higher than the limit of parse_yaml() on the nesting of a file. Limited, because each step stores its whole path, so memory grows with
// the square of the number of steps.
constexpr size_t kMostSteps = 64;

void place_on_command_line(Node& node) {
  node.position = kCommandLine;
  for (auto& item : node.items) place_on_command_line(item);
  for (auto& member : node.members) {
    member.position = kCommandLine;
    place_on_command_line(member.value);
  }
}

// Returns item `index` of the list `node` at `path`. Throws UsageError with the reason if that is not possible.
Node& enter_list(Node& node, size_t index, const std::string& path) {
  if (node.kind != Node::Kind::kList) {
    throw UsageError(fmt::format("{} is not a list; to set a whole list, write {}=[...]", path, path));
  }
  if (index >= node.items.size()) {
    throw UsageError(fmt::format("{} has {}, with indices from 0; to add an item, give the whole list, as in {}=[...]", path,
                                 counted(node.items.size(), "item"), path));
  }
  return node.items[index];
}

// Returns the value of key `name` of the section `node` at `path`; adds the key if it is missing. `is_item`: the section is an item of a
// list, written as `- name` or `- name: {…}`. Throws like enter_list().
Node& enter_section(Node& node, const std::string& name, const std::string& path, bool is_item) {
  const bool is_bare_item = is_item && node.kind == Node::Kind::kScalar;
  const bool is_full_item = is_item && node.kind == Node::Kind::kMap && !node.members.empty();
  if (is_bare_item || is_full_item) {
    const auto& item = is_bare_item ? node.text : node.members.front().name;
    if (item != name) throw UsageError(fmt::format("{} is {}, not {}; to replace it, give the whole list", path, item, name));
  }
  if (is_bare_item) node.kind = Node::Kind::kNull;
  if (node.kind == Node::Kind::kNull) node.kind = Node::Kind::kMap;
  if (node.kind != Node::Kind::kMap) {
    throw UsageError(
        fmt::format("{} is not a section; set the whole value, as in {}={}", path, path, node.kind == Node::Kind::kList ? "[...]" : "..."));
  }
  if (node.find(name) == nullptr) {
    Node missing;
    missing.position = kCommandLine;
    node.set(name, std::move(missing));
  }
  return node.find(name)->value;
}

}  // namespace

void apply_override(Node& root, const std::string& text, Problems& problems) {
  const size_t equals = text.find('=');
  const auto path = text.substr(0, equals);
  const auto steps = parse_key_path(path);
  if (equals == std::string::npos || !steps) {
    problems.add(kCommandLine, "", fmt::format("\"{}\" is not an override; write key.path=value, such as optimizer.lr=0.05", text));
    return;
  }
  Node value;
  try {
    value = parse_yaml(text.substr(equals + 1), kCommandLine.source);
  } catch (const UsageError& error) {
    problems.add(kCommandLine, path, fmt::format("the value is not valid YAML ({})", error.what()));
    return;
  }
  place_on_command_line(value);

  Node* node = &root;
  try {
    std::string entered;
    bool is_item = false;
    for (const auto& step : *steps) {
      node = step.index ? &enter_list(*node, *step.index, entered) : &enter_section(*node, step.name, entered, is_item);
      entered = step.path;
      is_item = step.index.has_value();
    }
  } catch (const UsageError& error) {
    problems.add(kCommandLine, path, error.what());
    return;
  }
  *node = std::move(value);
}

std::optional<KeyPath> parse_key_path(const std::string& text) {
  KeyPath steps;
  size_t begin = 0;
  while (true) {
    size_t end = std::min(text.find_first_of(".[", begin), text.size());
    if (end == begin || steps.size() >= kMostSteps) return std::nullopt;
    steps.push_back({text.substr(begin, end - begin), std::nullopt, text.substr(0, end)});
    while (end < text.size() && text[end] == '[' && steps.size() < kMostSteps) {
      size_t index = 0;
      const char* last = text.data() + text.size();
      const auto result = std::from_chars(text.data() + end + 1, last, index);
      if (result.ec != std::errc{} || result.ptr == last || *result.ptr != ']') return std::nullopt;
      end = static_cast<size_t>(result.ptr - text.data()) + 1;
      steps.push_back({"", index, text.substr(0, end)});
    }
    if (end == text.size()) return steps;
    if (text[end] != '.') return std::nullopt;
    begin = end + 1;
  }
}

}  // namespace trainer::config
