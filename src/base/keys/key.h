#pragma once
// One key of a table (key_table.h).

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/keys/node.h"
#include "base/keys/registry.h"

namespace trainer {

// A value that the program chooses when the file contains `auto`.
template <class T>
struct Auto {
  std::optional<T> value;
  bool operator==(const Auto&) const = default;
};

// The properties of a key besides its name and default.
struct KeyInfo {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  bool max_excluded = false;
  std::string unit{};
  std::string doc{};
  bool required = false;
  // For text that is the path of a file or folder on this host: ~ and ${NAME} are replaced when it is read.
  bool is_path = false;
  bool may_be_empty = true;  // for text
  bool may_be_one = false;   // for a list of numbers: one number alone is a list of it
};

// One described key, bound to the struct member that it fills.
struct Key {
  std::string name;
  std::string type;   // for people: "integer", "number or null", "list of numbers", "cpu | cuda | auto"
  std::string range;  // for people: ">= 1", "0 to 1", or empty
  std::string unit;
  std::string doc;
  bool required = false;
  // Fills the member; on failure leaves it unchanged and returns what was expected ("an integer >= 1").
  std::function<std::optional<std::string>(const Node&)> read;
  std::function<Node()> write;
  // Values that must be refused, in YAML: one of the wrong type and, if the key has a range, some out of range.
  std::vector<std::string> refused_examples;
  // Set instead of `read` for a nested section, a list of sections, a named component and a list of components.
  std::function<void(KeyTable&)> section;
  // For a section that may be null: whether it is set, and a function that sets it (true) or makes it null. `section` requires a set one.
  std::function<bool()> has_section;
  std::function<void(bool)> set_section;
  // For a list of sections: their number, a function that sets it (new ones have their defaults), and the keys of each.
  std::function<size_t()> num_sections;
  std::function<void(size_t)> resize_sections;
  std::function<void(size_t, KeyTable&)> section_at;
  const RegistryBase* registry = nullptr;
  ComponentConfig* component = nullptr;
  std::vector<ComponentConfig>* components = nullptr;
};

}  // namespace trainer
