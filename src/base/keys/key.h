#pragma once
// The entries of a key table (trainer/keys.h).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/component.h"
#include "trainer/keys.h"

namespace trainer {

// A tree of values as uninterpreted text, with the position of each key and value in the file that it was read from.

// Where a key or value was written.
struct Position {
  std::string source;  // the file as the user named it, or "command line"
  int line = 0;        // from 1; 0: no line (command line)
  int column = 0;      // from 1

  bool is_on_command_line() const { return line == 0 && !source.empty(); }
};
std::string to_string(const Position& position);  // "configs/x.yaml:12:7" or "command line"

struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Member;

  Kind kind = Kind::kNull;
  std::string text;     // of a scalar
  bool quoted = false;  // the scalar is text, even if it looks like a number
  Position position;
  std::vector<Node> items;      // of a list
  std::vector<Member> members;  // of a map, in the order of the file, names unique
  KeyFacts facts = {};          // only in the tree of an experiment's values

  static Node scalar(std::string text, bool quoted = false);
  static Node list(std::vector<Node> items);
  static Node map(Position position = {});

  const Member* find(std::string_view name) const;
  Member* find(std::string_view name);
  Node& set(std::string name, Node value);
};

struct Node::Member {
  std::string name;
  Position position;
  Node value;
};

// The path of a key in the section at `path`, which is empty at the top level: "optimizer.lr".
inline std::string child_path(const std::string& path, const std::string& name) { return path.empty() ? name : path + '.' + name; }

// One described key, bound to the struct member that it fills.
struct Key : KeyInfo {
  std::string name;
  std::string type;                  // for messages and documentation: "integer", "number or null", "list of numbers", "cpu | cuda | auto"
  std::string range;                 // for messages and documentation: ">= 1", "0 to 1", or empty
  std::optional<KeyFacts> facts;     // not set: those of its section
  std::vector<std::string> choices;  // the allowed words; empty: the value is not chosen from a list
  // Fills the member; on failure leaves it unchanged and returns what was expected ("an integer >= 1").
  std::function<std::optional<std::string>(const Node&)> read;
  std::function<Node()> write;
  // Instead of `read`, one of these is set: `section` for a nested section, `section_at` for a list of sections, `component` for a named
  // component, `components` for a list of components.
  std::function<void(KeyTable&)> section;
  // For a section that may be null: whether it is set, and a function that sets it (true) or makes it null. `section` may only be called
  // while it is set.
  std::function<bool()> has_section;
  std::function<void(bool)> set_section;
  // For a list of sections: their number, a function that sets it (new sections have default values), and the keys of each.
  std::function<size_t()> num_sections;
  std::function<void(size_t)> resize_sections;
  std::function<void(size_t, KeyTable&)> section_at;
  const RegistryBase* registry = nullptr;
  ComponentConfig* component = nullptr;
  // For a list of components: the items (nullopt stands for the word `auto`, where it is allowed), and a function that sets them.
  std::function<std::optional<std::vector<ComponentConfig>>()> components;
  std::function<void(std::optional<std::vector<ComponentConfig>>)> set_components;
  bool may_be_auto = false;
};

// A check of a key against other keys of its section.
struct Check {
  std::string key;
  bool is_warning = false;
  std::function<std::string()> find;  // returns what is wrong; empty: the check has passed
};

// The entries of the table of a section or of a component's options.
struct SectionKeys {
  SectionKeys() = default;
  explicit SectionKeys(const std::function<void(KeyTable&)>& describe);
  explicit SectionKeys(Options& options);

  // The key of this name, or nullptr.
  const Key* find(std::string_view name) const;

  std::vector<Key> keys;
  std::vector<Check> checks;
};

// Checks values that were set in code. Throws UsageError for the first one that is out of range or contradicts another. `path`: of the
// section.
void check_values(const SectionKeys& table, const std::string& path);

}  // namespace trainer
