#include <fmt/format.h>

#include <algorithm>

#include "config/yaml_lines.h"

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

void add_lines(const Node& map, const std::string& path, size_t indent, std::vector<YamlLine>& lines) {
  for (const auto& member : map.members) {
    const auto key = std::string(indent, ' ') + (is_plain(member.name) ? member.name : quote(member.name)) + ':';
    const auto member_path = path.empty() ? member.name : path + '.' + member.name;
    const Node& value = member.value;
    if (value.kind == Node::Kind::kMap && !value.members.empty()) {
      lines.push_back({key, ""});
      add_lines(value, member_path, indent + 2, lines);
    } else if (value.kind == Node::Kind::kList && !value.items.empty() && value.items.front().kind == Node::Kind::kMap) {
      lines.push_back({key, ""});
      for (size_t i = 0; i < value.items.size(); ++i) {
        lines.push_back({fmt::format("{:{}}- {}", "", indent + 2, to_inline_yaml(value.items[i])), fmt::format("{}[{}]", member_path, i)});
      }
    } else {
      lines.push_back({key + ' ' + to_inline_yaml(value), member_path});
    }
  }
}

}  // namespace

std::vector<YamlLine> yaml_lines(const Node& map) {
  std::vector<YamlLine> lines;
  add_lines(map, "", 0, lines);
  return lines;
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
  for (const auto& line : yaml_lines(node)) out += line.text + '\n';
  return out;
}

}  // namespace trainer::config
