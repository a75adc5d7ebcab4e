#include "config/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "base/text.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr size_t kMaxDepth = 32;
// The time to find a key is proportional to their number.
constexpr size_t kMostKeys = 1000;

[[noreturn]] void fail(const Position& position, const std::string& what) { throw UsageError(to_string(position) + ": " + what); }

// Builds the tree from yaml-cpp's events, which carry positions.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string source) : source_(std::move(source)) {}

  Node take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) fail(position(mark), "a second YAML document begins here, but an experiment file contains one; remove the line ---");
    has_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Node* node = add(mark, "", anchor, Node{});
    // If the value is missing, the mark is that of the next line, so the position of the key is used.
    if (node != &root_ && open_.back()->kind == Node::Kind::kMap) node->position = open_.back()->members.back().position;
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override { check_anchor(mark, anchor); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    if (expects_key()) {
      check_tag(mark, tag);
      check_anchor(mark, anchor);
      if (const auto* earlier = open_.back()->find(value)) {
        fail(position(mark), fmt::format("\"{}\" is given a second time (first on line {}); keep one", value, earlier->position.line));
      }
      if (open_.back()->members.size() == kMostKeys) {
        fail(position(mark), fmt::format("more than {} keys in one section, so this is not an experiment file; check the path", kMostKeys));
      }
      open_.back()->members.push_back({value, position(mark), Node{}});
      awaiting_value_.back() = true;
      return;
    }
    add(mark, tag, anchor, Node::scalar(value, tag == "!"));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(add(mark, tag, anchor, Node::list({})), mark);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(add(mark, tag, anchor, Node::map()), mark);
  }
  void OnMapEnd() override { close(); }

 private:
  Position position(const YAML::Mark& mark) const { return {source_, mark.line + 1, mark.column + 1}; }

  bool expects_key() const { return !open_.empty() && open_.back()->kind == Node::Kind::kMap && !awaiting_value_.back(); }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") fail(position(mark), "tags are not supported; remove this one (" + tag + ")");
  }

  void check_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor == 0) return;
    fail(position(mark),
         "anchors (&name) and aliases (*name) are not supported; write the value in each place, or in a file that is the `base` of others");
  }

  Node* add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node node) {
    check_tag(mark, tag);
    check_anchor(mark, anchor);
    node.position = position(mark);
    if (expects_key()) fail(position(mark), "a key must be a name, not null, a list or a section");
    if (open_.empty()) {
      root_ = std::move(node);
      return &root_;
    }
    Node& parent = *open_.back();
    if (parent.kind == Node::Kind::kMap) {
      awaiting_value_.back() = false;
      parent.members.back().value = std::move(node);
      return &parent.members.back().value;
    }
    return &parent.items.emplace_back(std::move(node));
  }

  void open(Node* node, const YAML::Mark& mark) {
    if (open_.size() == kMaxDepth)
      fail(position(mark), fmt::format("values are nested more than {} levels deep; use fewer levels", kMaxDepth));
    open_.push_back(node);
    awaiting_value_.push_back(false);
  }

  void close() {
    open_.pop_back();
    awaiting_value_.pop_back();
  }

  std::string source_;
  Node root_;
  // The lists and maps that are still open. A parent grows only while none of its children is open, so the pointers stay valid.
  std::vector<Node*> open_;
  std::vector<bool> awaiting_value_;
  bool has_document_ = false;
};

Position position_at(std::string_view text, size_t offset, const std::string& source) {
  const auto before = text.substr(0, offset);
  const size_t line_begin = before.rfind('\n') + 1;  // 0 in the first line
  return {source, 1 + static_cast<int>(std::ranges::count(before, '\n')), 1 + static_cast<int>(offset - line_begin)};
}

void check_text(std::string_view text, const std::string& source) {
  if (text.size() > kMaxBytes) {
    throw UsageError(
        fmt::format("{}: {} of YAML, but an experiment file has at most 1 MiB; check the path", source, format_bytes(text.size())));
  }
  for (size_t i = 0; i < text.size();) {
    const size_t length = first_character(text.substr(i)).length;
    if (length == 0 || text[i] == '\0') {
      fail(position_at(text, i, source),
           fmt::format("byte 0x{:02x} is not UTF-8 text; save the file as UTF-8", static_cast<unsigned char>(text[i])));
    }
    i += length;
  }
}

std::string parse_error_text(std::string_view text, const YAML::Exception& error) {
  std::string what = "invalid YAML: " + error.msg;
  size_t begin = 0;
  for (int line = 0; line < error.mark.line && begin != std::string_view::npos; ++line) begin = text.find('\n', begin) + 1;
  const auto indentation = text.substr(std::min(begin, text.size())).substr(0, static_cast<size_t>(std::max(error.mark.column, 0)) + 1);
  if (indentation.find('\t') != std::string_view::npos) what += " (there is a tab here; indent with spaces)";
  return what;
}

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

// Whether all YAML readers read the unquoted text as text. Readers of YAML 1.1 read `no`, 0x1f, 1_000, 12:30 and dates as other types.
bool reads_as_text(std::string_view text) {
  static constexpr std::array<std::string_view, 8> kWords = {"y", "yes", "on", "true", "n", "no", "off", "false"};
  const bool may_be_number = text.empty() || std::string_view("0123456789+-.").find(text.front()) != text.npos;
  if (may_be_number && !text.starts_with("./") && !text.starts_with("../")) return false;
  return is_plain(text) && std::ranges::find(kWords, lower_case(text)) == kWords.end();
}

// Characters that YAML 1.1 reads as line breaks or does not allow.
constexpr std::array<char32_t, 5> kNotInYaml11 = {0x2028, 0x2029, 0xfeff, 0xfffe, 0xffff};

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
    } else if (first.length > 0 && std::ranges::find(kNotInYaml11, first.code_point) != kNotInYaml11.end()) {
      quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(first.code_point));
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

void add_lines(const Node& map, size_t indent, std::string& lines) {
  for (const auto& [name, position, value] : map.members) {
    lines += std::string(indent, ' ') + key_text(name) + ':';
    if (value.kind == Node::Kind::kMap && !value.members.empty()) {
      lines += '\n';
      add_lines(value, indent + 2, lines);
    } else if (value.kind == Node::Kind::kList && !value.items.empty() && value.items.front().kind == Node::Kind::kMap) {
      lines += '\n';
      for (const auto& item : value.items) lines += fmt::format("{:{}}- {}\n", "", indent + 2, to_inline_yaml(item));
    } else {
      lines += ' ' + to_inline_yaml(value) + '\n';
    }
  }
}

}  // namespace

Node parse_yaml(std::string_view text, const std::string& source) {
  check_text(text, source);
  std::istringstream stream{std::string(text)};
  TreeBuilder builder(source);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    fail({source, std::max(error.mark.line, 0) + 1, std::max(error.mark.column, 0) + 1}, parse_error_text(text, error));
  }
  return builder.take_root();
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
  std::string lines;
  add_lines(node, 0, lines);
  return lines;
}

}  // namespace trainer::config
