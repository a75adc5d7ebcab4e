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

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto value = anchors_.copy(anchor, position(mark), kMaxDepth - open_.size());
    if (!value) fail(position(mark), "this alias (*name) is inside the value that it refers to; remove the alias");
    place(mark, std::move(*value));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    if (expects_key()) {
      check_tag(mark, tag);
      if (anchor != 0) fail(position(mark), "an anchor (&name) is not allowed before a key; write it before a value");
      if (const auto* earlier = open_.back()->find(value)) {
        fail(position(mark), fmt::format("\"{}\" is given a second time (first on line {}); keep one", value, earlier->position.line));
      }
      refuse_more_keys(open_.back()->members.size(), position(mark));
      open_.back()->members.push_back({value, position(mark), Node{}});
      awaiting_value_.back() = true;
      return;
    }
    add(mark, tag, anchor, Node::scalar(value, tag == "!"));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(add(mark, tag, 0, Node::list({})), mark, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(add(mark, tag, 0, Node::map()), mark, anchor);
  }
  void OnMapEnd() override {
    apply_merge_key(*open_.back());
    close();
  }

 private:
  Position position(const YAML::Mark& mark) const { return {source_, mark.line + 1, mark.column + 1}; }

  bool expects_key() const { return !open_.empty() && open_.back()->kind == Node::Kind::kMap && !awaiting_value_.back(); }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") fail(position(mark), "tags are not supported; remove this one (" + tag + ")");
  }

  Node* add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node node) {
    check_tag(mark, tag);
    node.position = position(mark);
    if (anchor != 0) anchors_.define(anchor, node);
    return place(mark, std::move(node));
  }

  Node* place(const YAML::Mark& mark, Node node) {
    if (expects_key()) fail(position(mark), "a key must be a name, not null, a list, a section or an alias");
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

  void open(Node* node, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (open_.size() == kMaxDepth)
      fail(position(mark), fmt::format("values are nested more than {} levels deep; use fewer levels", kMaxDepth));
    open_.push_back(node);
    open_anchors_.push_back(anchor);
    awaiting_value_.push_back(false);
  }

  void close() {
    if (open_anchors_.back() != 0) anchors_.define(open_anchors_.back(), *open_.back());
    open_.pop_back();
    open_anchors_.pop_back();
    awaiting_value_.pop_back();
  }

  std::string source_;
  Node root_;
  // The lists and maps that are still open. A parent grows only while none of its children is open, so the pointers stay valid.
  std::vector<Node*> open_;
  std::vector<YAML::anchor_t> open_anchors_;  // of each; 0: none
  std::vector<bool> awaiting_value_;
  Anchors anchors_;
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

// Whether all YAML readers read the unquoted text as text. Readers of YAML 1.1 read `no`, 0x1f, 1_000, 12:30 and dates as other types.
bool reads_as_text(std::string_view text) {
  static constexpr std::array<std::string_view, 8> kWords = {"y", "yes", "on", "true", "n", "no", "off", "false"};
  const bool may_be_number = text.empty() || std::string_view("0123456789+-.").find(text.front()) != text.npos;
  if (may_be_number && !text.starts_with("./") && !text.starts_with("../")) return false;
  return is_plain(text) && std::ranges::find(kWords, lower_case(text)) == kWords.end();
}

// Characters that YAML 1.1 reads as line breaks or does not allow: U+2028, U+2029, U+FEFF, U+FFFE and U+FFFF. Each has three bytes.
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

namespace {

// A few aliases of aliases of lists could expand to more memory than there is.
constexpr size_t kMaxAliasBytes = 16 << 20;

size_t depth_of(const Node& node) {
  size_t below = 0;
  for (const auto& item : node.items) below = std::max(below, depth_of(item));
  for (const auto& member : node.members) below = std::max(below, depth_of(member.value));
  const bool has_items = node.kind == Node::Kind::kList || node.kind == Node::Kind::kMap;
  return below + (has_items ? 1 : 0);
}

size_t bytes_of(const Node& node) {
  size_t bytes = sizeof(Node) + node.text.size();
  for (const auto& item : node.items) bytes += bytes_of(item);
  for (const auto& member : node.members) bytes += sizeof(Node::Member) + member.name.size() + bytes_of(member.value);
  return bytes;
}

}  // namespace

void refuse_more_keys(size_t num_keys, const Position& position) {
  if (num_keys < kMostKeys) return;
  throw UsageError(fmt::format("{}: more than {} keys in one section, so this is not an experiment file; check the path",
                               to_string(position), kMostKeys));
}

void Anchors::count(const Node& value, const Position& use) {
  num_bytes_ += bytes_of(value);
  if (num_bytes_ <= kMaxAliasBytes) return;
  throw UsageError(fmt::format("{}: the aliases (*name) of this file expand to more than {} of values; use fewer", to_string(use),
                               format_bytes(kMaxAliasBytes)));
}

void Anchors::define(size_t id, const Node& value) {
  count(value, value.position);
  values_[id] = value;
}

std::optional<Node> Anchors::copy(size_t id, const Position& use, size_t max_depth) {
  const auto found = values_.find(id);
  if (found == values_.end()) return std::nullopt;
  count(found->second, use);
  if (depth_of(found->second) > max_depth) {
    throw UsageError(
        fmt::format("{}: with this alias, values are nested more than {} levels deep; use fewer levels", to_string(use), kMaxDepth));
  }
  return found->second;
}

void apply_merge_key(Node& map) {
  const auto* merge = map.find("<<");
  if (merge == nullptr) return;
  const Node& value = merge->value;
  const auto maps = value.kind == Node::Kind::kMap ? std::vector<Node>{value} : value.items;
  const bool are_maps = std::ranges::all_of(maps, [](const Node& node) { return node.kind == Node::Kind::kMap; });
  if (!are_maps || maps.empty()) {
    throw UsageError(
        fmt::format("{}: << must be a section or a list of sections whose keys are merged, as in `<<: *name` or `<<: [*first, *second]`",
                    to_string(merge->position)));
  }
  std::vector<Node::Member> members;
  for (const auto& member : map.members) {
    if (member.name != "<<") {
      members.push_back(member);
      continue;
    }
    for (const auto& source : maps) {
      for (const auto& merged : source.members) {
        const bool is_given =
            map.find(merged.name) != nullptr || std::ranges::find(members, merged.name, &Node::Member::name) != members.end();
        if (is_given) continue;
        refuse_more_keys(members.size(), merge->position);
        members.push_back(merged);
      }
    }
  }
  map.members = std::move(members);
}

}  // namespace trainer::config
