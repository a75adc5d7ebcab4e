#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/utf8.h"
#include "config/yaml.h"

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

// Whether all readers of YAML take the text as text without quotes: not those of 1.1, which know `no`, 0x1f, 1_000, 12:30 and dates.
bool reads_as_text(std::string_view text) {
  static constexpr std::array<std::string_view, 8> kWords = {"y", "yes", "on", "true", "n", "no", "off", "false"};
  const bool may_be_number = text.empty() || std::string_view("0123456789+-.").find(text.front()) != text.npos;
  if (may_be_number) return text.starts_with("./") || text.starts_with("../");
  return is_plain(text) && std::ranges::find(kWords, lower_case(text)) == kWords.end();
}

// Characters that YAML 1.1 takes for line breaks, or does not allow: U+2028, U+2029, U+FEFF, U+FFFE and U+FFFF, which have three bytes.
const char* escape_of(std::string_view character) {
  static constexpr std::array<std::pair<std::string_view, const char*>, 5> kEscapes = {{{"\xe2\x80\xa8", "\\u2028"},
                                                                                        {"\xe2\x80\xa9", "\\u2029"},
                                                                                        {"\xef\xbb\xbf", "\\ufeff"},
                                                                                        {"\xef\xbf\xbe", "\\ufffe"},
                                                                                        {"\xef\xbf\xbf", "\\uffff"}}};
  const auto* found = std::ranges::find_if(kEscapes, [&](const auto& escape) { return character == escape.first; });
  return found == kEscapes.end() ? nullptr : found->second;
}

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const auto first = first_character(text);
    const auto character = text.substr(0, std::max<size_t>(first.length, 1));
    if (character == "\"" || character == "\\") {
      quoted += '\\';
      quoted += character;
    } else if (first.length > 0 && is_control(first.code_point)) {
      quoted += fmt::format("\\x{:02x}", static_cast<uint32_t>(first.code_point));
    } else if (const char* escape = escape_of(character)) {
      quoted += escape;
    } else {
      quoted += character;
    }
    text.remove_prefix(character.size());
  }
  return quoted + '"';
}

std::string key_text(const std::string& name) { return is_plain(name) ? name : quote(name); }

std::string scalar_text(const Node& node) {
  const bool needs_no_quotes = node.quoted ? reads_as_text(node.text) : is_plain(node.text);
  return needs_no_quotes ? node.text : quote(node.text);
}

void add_lines(const Node& map, const std::string& path, size_t indent, std::vector<YamlLine>& lines) {
  for (const auto& member : map.members) {
    const auto key = std::string(indent, ' ') + key_text(member.name) + ':';
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
        parts.push_back(fmt::format("{}: {}", key_text(member.name), to_inline_yaml(member.value)));
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
