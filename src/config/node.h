#pragma once
// The tree of a YAML text as parsed by yaml-cpp, with the position of each key and value. The values are not interpreted yet.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainer::config {

// Where a key or value was written.
struct Position {
  std::string source;  // the file as the user named it, or "command line"
  int line = 0;        // from 1; 0: no line (command line)
  int column = 0;      // from 1
};
std::string to_string(const Position& position);  // "configs/x.yaml:12:7" or "command line"

struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Member;

  Kind kind = Kind::kNull;
  std::string text;     // of a scalar
  bool quoted = false;  // a quoted scalar is text, even when it looks like a number
  Position position;
  std::vector<Node> items;      // of a list
  std::vector<Member> members;  // of a map, in the order of the file, names unique

  static Node scalar(std::string text, bool quoted = false);
  static Node list(std::vector<Node> items);
  static Node map();

  const Member* find(std::string_view name) const;
  Member* find(std::string_view name);
  Node& set(std::string name, Node value);
};

struct Node::Member {
  std::string name;
  Position position;
  Node value;
};

// One document of at most 1 MiB without tags, nested at most 32 deep, with at most 1,000 keys in a section; aliases are resolved. Throws
// UsageError with the position.
Node parse_yaml(std::string_view text, const std::string& source);

// Writes a tree as YAML that parse_yaml reads back to the same tree. Short maps of scalars are written on one line.
std::string to_yaml(const Node& node);

// One line, in flow style: for messages and reference tables.
std::string to_inline_yaml(const Node& node);

}  // namespace trainer::config
