#include "config/override.h"

#include <fmt/format.h>

#include "base/error.h"

namespace trainer::config {
namespace {

const Position kCommandLine{"command line", 0, 0};

void place_on_command_line(Node& node) {
  node.position = kCommandLine;
  for (auto& item : node.items) place_on_command_line(item);
  for (auto& member : node.members) {
    member.position = kCommandLine;
    place_on_command_line(member.value);
  }
}

bool names_another_kind(const Node& section, const Node& value) {
  const auto* before = section.find("name");
  const auto* after = value.find("name");
  return after != nullptr && (before == nullptr || before->value.text != after->value.text);
}

void merge(Node& target, Node value) {
  if (target.kind != Node::Kind::kMap || value.kind != Node::Kind::kMap || names_another_kind(target, value)) {
    target = std::move(value);
    return;
  }
  for (auto& member : value.members) {
    if (auto* existing = target.find(member.name)) {
      merge(existing->value, std::move(member.value));
    } else {
      target.members.push_back(std::move(member));
    }
  }
}

}  // namespace

void apply_override(Node& root, const std::string& text, Problems& problems) {
  const size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  if (equals == std::string::npos || path.empty() || path.front() == '.' || path.back() == '.' || path.find("..") != std::string::npos) {
    problems.add(kCommandLine, "", fmt::format("\"{}\" is not an override; write key.path=value, such as optimizer.lr=0.05", text));
    return;
  }
  Node value;
  try {
    value = parse_yaml(text.substr(equals + 1), kCommandLine.source);
  } catch (const UsageError& error) {
    problems.add(kCommandLine, path, fmt::format("the value is not YAML ({})", error.what()));
    return;
  }
  place_on_command_line(value);

  Node* node = &root;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const auto name = path.substr(begin, end - begin);
    if (node->kind == Node::Kind::kNull) node->kind = Node::Kind::kMap;
    if (node->kind != Node::Kind::kMap) {
      problems.add(kCommandLine, path,
                   fmt::format("{} is not a section; give it whole, such as {}={}", path.substr(0, begin - 1), path.substr(0, begin - 1),
                               node->kind == Node::Kind::kList ? "[...]" : "..."));
      return;
    }
    auto* member = node->find(name);
    if (member == nullptr) {
      Node missing;
      missing.position = kCommandLine;
      node->set(name, std::move(missing));
      member = node->find(name);
    }
    node = &member->value;
    begin = end + 1;
  }
  merge(*node, std::move(value));
}

}  // namespace trainer::config
