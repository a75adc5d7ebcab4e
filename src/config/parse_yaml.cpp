#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "config/node.h"

namespace trainer::config {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr size_t kMaxDepth = 32;

[[noreturn]] void fail(const Position& position, const std::string& what) { throw UsageError(to_string(position) + ": " + what); }

// Builds the tree from yaml-cpp's events, which carry positions and do not resolve aliases.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string source) : source_(std::move(source)) {}

  Node take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) fail(position(mark), "a second YAML document begins here; an experiment file holds one");
    has_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, "", anchor, Node{}); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(position(mark), "aliases (*name) are not supported; write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    if (expects_key()) {
      check_plain(mark, tag, anchor);
      open_.back()->members.push_back({value, position(mark), Node{}});
      check_unique(open_.back()->members);
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

  void check_plain(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != 0) fail(position(mark), "anchors (&name) are not supported; write the value out where it is needed");
    if (!tag.empty() && tag != "?" && tag != "!") fail(position(mark), "tags (" + tag + ") are not supported");
  }

  void check_unique(const std::vector<Node::Member>& members) const {
    const auto& last = members.back();
    for (const auto& earlier : members) {
      if (&earlier != &last && earlier.name == last.name) {
        fail(last.position, fmt::format("\"{}\" stands here a second time (first at line {}); keep one", last.name, earlier.position.line));
      }
    }
  }

  Node* add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node node) {
    check_plain(mark, tag, anchor);
    if (expects_key()) fail(position(mark), "a key must be plain text");
    node.position = position(mark);
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
    if (open_.size() == kMaxDepth) fail(position(mark), fmt::format("nested more than {} deep", kMaxDepth));
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
  Position position{source, 1, 1};
  for (const char c : text.substr(0, offset)) {
    ++position.column;
    if (c == '\n') {
      ++position.line;
      position.column = 1;
    }
  }
  return position;
}

// Length of the well-formed UTF-8 sequence at the beginning of `text` (Unicode 15, table 3-7), 0 if there is none.
size_t utf8_sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) >= 0xA0;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool too_large = first == 0xF4 && byte(1) >= 0x90;
    return continues(1) && continues(2) && continues(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

void check_text(std::string_view text, const std::string& source) {
  if (text.size() > kMaxBytes) {
    throw UsageError(
        fmt::format("{}: {} of YAML; an experiment file has at most 1 MiB, so this is hardly one", source, format_bytes(text.size())));
  }
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_sequence_length(text.substr(i));
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
  if (indentation.find('\t') != std::string_view::npos) what += " (a tab stands here; indent with spaces)";
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

}  // namespace trainer::config
