#pragma once
// A tree of values as text, not interpreted yet, with the position of each key and value in the file that it was read from.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainer {

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
  bool quoted = false;  // it is text, even if it looks like a number
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

}  // namespace trainer
