#include "config/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace trainer::config {
namespace {

std::string child_path(const std::string& path, const std::string& name) { return path.empty() ? name : path + '.' + name; }

std::string shown(const Node& node) {
  auto text = to_inline_yaml(node);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string with_hint(std::string text, const std::string& name, const std::vector<std::string>& candidates) {
  const auto near = nearest_name(name, candidates);
  return near.empty() ? text : text + fmt::format("; did you mean \"{}\"?", near);
}

std::string unknown_kind(const std::string& name, const Family& family) {
  return with_hint(fmt::format("\"{}\" is not one of {}", name, fmt::join(names_of(family), ", ")), name, names_of(family));
}

// The kind that `node` names; false when it names none.
bool choose_kind(const Node& node, const Family& family, Part& part, const std::string& path, Problems& problems) {
  const PartKind* kind = node.kind == Node::Kind::kScalar ? find_kind(family, node.text) : nullptr;
  if (kind == nullptr) {
    problems.add(node.position, path,
                 node.kind == Node::Kind::kScalar ? unknown_kind(node.text, family) : fmt::format("expected a name, got {}", shown(node)));
    return false;
  }
  part = {kind->name, kind->make_options()};
  return true;
}

void read_parts(const Node& node, const Key& key, const std::string& path, Problems& problems) {
  if (node.kind != Node::Kind::kList) {
    problems.add(node.position, path, fmt::format("expected a list of parts such as [{}], got {}", key.family->front().name, shown(node)));
    return;
  }
  key.parts->clear();
  for (size_t i = 0; i < node.items.size(); ++i) {
    const Node& item = node.items[i];
    const bool is_map = item.kind == Node::Kind::kMap && item.members.size() == 1;
    const auto item_path = fmt::format("{}[{}]", path, i);
    if (!is_map && item.kind != Node::Kind::kScalar) {
      problems.add(item.position, item_path, fmt::format("expected one part, as `name` or `name: {{key: value}}`, got {}", shown(item)));
      continue;
    }
    Node name = is_map ? Node::scalar(item.members.front().name) : item;
    name.position = item.position;
    Part part;
    if (!choose_kind(name, *key.family, part, item_path, problems)) continue;
    Node values = is_map ? item.members.front().value : Node{};
    if (values.kind == Node::Kind::kNull) {
      values = Node::map();
      values.position = item.position;
    }
    read_section(
        values, [&part](KeyTable& keys) { part.options->describe(keys); }, child_path(item_path, part.name), problems);
    key.parts->push_back(std::move(part));
  }
}

void read_value(const Node& node, const Key& key, const std::string& path, Problems& problems) {
  if (key.section) {
    const bool may_be_null = key.set_section != nullptr;
    if (may_be_null) key.set_section(node.kind != Node::Kind::kNull);
    if (!may_be_null || key.has_section()) read_section(node, key.section, path, problems);
  } else if (key.parts != nullptr) {
    read_parts(node, key, path, problems);
  } else if (key.read) {
    if (const auto expected = key.read(node)) problems.add(node.position, path, fmt::format("expected {}, got {}", *expected, shown(node)));
  }
}

}  // namespace

void read_section(const Node& node, const std::function<void(KeyTable&)>& describe, const std::string& path, Problems& problems) {
  if (node.kind != Node::Kind::kMap) {
    problems.add(node.position, path, fmt::format("expected a section of keys and values, got {}", shown(node)));
    return;
  }
  KeyTable table;
  describe(table);
  // The chosen kind's own keys stand in the same section, beside `name`. Without a known kind nothing can be said about them.
  bool kind_known = true;
  KeyTable kind_table;
  for (const auto& key : table.keys()) {
    if (key.part == nullptr) continue;
    const auto* member = node.find(key.name);
    if (member != nullptr) kind_known = choose_kind(member->value, *key.family, *key.part, child_path(path, key.name), problems);
    kind_known = kind_known && key.part->options != nullptr;
    if (kind_known) key.part->options->describe(kind_table);
  }
  std::vector<Key> keys = table.keys();
  keys.insert(keys.end(), kind_table.keys().begin(), kind_table.keys().end());

  std::vector<std::string> names;
  for (const auto& key : keys) names.push_back(key.name);
  for (const auto& member : node.members) {
    const auto key = std::ranges::find(keys, member.name, &Key::name);
    if (key != keys.end()) {
      read_value(member.value, *key, child_path(path, member.name), problems);
    } else if (kind_known) {
      problems.add(member.position, child_path(path, member.name), with_hint("unknown key", member.name, names));
    }
  }
  for (const auto& key : keys) {
    if (node.find(key.name) != nullptr) continue;
    if (key.required) problems.add(node.position, child_path(path, key.name), fmt::format("missing; it has no default ({})", key.type));
    if (key.section && !key.set_section) {
      Node empty = Node::map();
      empty.position = node.position;
      read_section(empty, key.section, child_path(path, key.name), problems);
    }
  }
}

Node write_section(const std::function<void(KeyTable&)>& describe) {
  KeyTable table;
  describe(table);
  Node node = Node::map();
  const auto write_options = [](Node& target, const Part& part) {
    for (auto& member : write_section([&part](KeyTable& keys) { part.options->describe(keys); }).members) {
      target.set(member.name, std::move(member.value));
    }
  };
  for (const auto& key : table.keys()) {
    if (key.section && (!key.has_section || key.has_section())) {
      node.set(key.name, write_section(key.section));
    } else if (key.part != nullptr) {
      node.set(key.name, Node::scalar(key.part->name));
      write_options(node, *key.part);
    } else if (key.parts != nullptr) {
      std::vector<Node> items;
      for (const auto& part : *key.parts) {
        Node options = Node::map();
        write_options(options, part);
        items.push_back(Node::map());
        items.back().set(part.name, std::move(options));
      }
      node.set(key.name, Node::list(std::move(items)));
    } else {
      node.set(key.name, key.write());
    }
  }
  return node;
}

}  // namespace trainer::config
