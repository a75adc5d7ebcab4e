#include "base/keys/key.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainer {

std::string to_string(const Position& position) {
  return position.line == 0 ? position.source : fmt::format("{}:{}:{}", position.source, position.line, position.column);
}

Node Node::scalar(std::string text, bool quoted) {
  Node node;
  node.kind = Kind::kScalar;
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

Node Node::list(std::vector<Node> items) {
  Node node;
  node.kind = Kind::kList;
  node.items = std::move(items);
  return node;
}

Node Node::map(Position position) {
  Node node;
  node.kind = Kind::kMap;
  node.position = std::move(position);
  return node;
}

const Node::Member* Node::find(std::string_view name) const {
  const auto found = std::ranges::find(members, name, &Member::name);
  return found == members.end() ? nullptr : &*found;
}

Node::Member* Node::find(std::string_view name) { return const_cast<Member*>(std::as_const(*this).find(name)); }

Node& Node::set(std::string name, Node value) {
  if (auto* member = find(name)) return member->value = std::move(value);
  const Position where = value.position;
  return members.emplace_back(Member{std::move(name), where, std::move(value)}).value;
}

SectionKeys::SectionKeys(const std::function<void(KeyTable&)>& describe) {
  KeyTable table;
  describe(table);
  keys = std::move(table.keys_);
  checks = std::move(table.checks_);
}

SectionKeys::SectionKeys(Options& options) : SectionKeys([&](KeyTable& table) { options.add_keys(table); }) {}

const Key* SectionKeys::find(std::string_view name) const {
  const auto found = std::ranges::find(keys, name, &Key::name);
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace trainer
