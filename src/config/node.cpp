#include "config/node.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainer::config {
namespace {

bool is_plain(std::string_view text) {
  static constexpr std::string_view kFirst = "_./+-";
  static constexpr std::string_view kLater = "_./+-:@%=";
  const auto is_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  if (text.empty() || text == "null" || text == "Null" || text == "NULL" || text == "-" || text.starts_with("- ") || text == "---" ||
      text == "..." || text.back() == ':') {
    return false;
  }
  if (!is_word(text.front()) && kFirst.find(text.front()) == std::string_view::npos) return false;
  return std::ranges::all_of(text, [&](char c) { return is_word(c) || kLater.find(c) != std::string_view::npos; });
}

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // control characters of Latin-1, in UTF-8
      quoted += fmt::format("\\x{:02x}", next);
      ++i;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string scalar_text(const Node& node) { return !node.quoted && is_plain(node.text) ? node.text : quote(node.text); }

void write_block(const Node& map, int indent, std::string& out) {
  for (const auto& member : map.members) {
    out += fmt::format("{:{}}{}:", "", indent, is_plain(member.name) ? member.name : quote(member.name));
    const Node& value = member.value;
    if (value.kind == Node::Kind::kMap && !value.members.empty()) {
      out += '\n';
      write_block(value, indent + 2, out);
    } else if (value.kind == Node::Kind::kList && !value.items.empty() && value.items.front().kind == Node::Kind::kMap) {
      out += '\n';
      for (const auto& item : value.items) out += fmt::format("{:{}}- {}\n", "", indent + 2, to_inline_yaml(item));
    } else {
      out += ' ' + to_inline_yaml(value) + '\n';
    }
  }
}

}  // namespace

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

Node Node::map() {
  Node node;
  node.kind = Kind::kMap;
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

std::string to_inline_yaml(const Node& node) {
  std::vector<std::string> parts;
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kScalar:
      return scalar_text(node);
    case Node::Kind::kList:
      for (const auto& item : node.items) parts.push_back(to_inline_yaml(item));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    case Node::Kind::kMap:
      for (const auto& member : node.members) {
        parts.push_back(fmt::format("{}: {}", is_plain(member.name) ? member.name : quote(member.name), to_inline_yaml(member.value)));
      }
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  return {};
}

std::string to_yaml(const Node& node) {
  if (node.kind != Node::Kind::kMap) return to_inline_yaml(node) + '\n';
  std::string out;
  write_block(node, 0, out);
  return out;
}

}  // namespace trainer::config
