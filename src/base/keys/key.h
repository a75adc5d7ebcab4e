#pragma once
// What a key table (trainer/keys.h) holds.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/keys/node.h"
#include "trainer/component.h"

namespace trainer {

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

// A check of a key against other keys of its section.
struct Check {
  std::string key;
  bool is_warning = false;
  std::function<std::string()> find;  // what is wrong; empty: nothing
};

}  // namespace trainer
