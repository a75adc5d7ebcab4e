#pragma once
// Key tables: the only place that defines a key's name, type, default, range, unit and meaning. A section is a plain struct whose
// members are initialised with their defaults; its describe() binds each member to its key. Reading, writing, the reference and the
// checks all use the same table.
//
//   struct LoggingSection {
//     int64_t every_steps = 50;
//     void describe(KeyTable& keys) {
//       keys.add("every_steps", every_steps, {.min = 1, .unit = "steps", .doc = "Steps between two lines."});
//       keys.refuse("every_steps", [this] { return every_steps > max_steps ? "more than max_steps" : ""; });
//     }
//   };

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/choices.h"
#include "config/node.h"
#include "config/registry.h"

namespace trainer::config {

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

// A check of a key against other keys of its section.
struct Check {
  std::string key;
  bool is_warning = false;
  std::function<std::string()> find;  // what is wrong; empty: nothing
};

// The types of the members that KeyTable::add binds.
template <class T, class... Types>
concept OneOf = (std::same_as<T, Types> || ...);
template <class T>
concept KeyType = OneOf<T, bool, int64_t, double, std::string, std::optional<int64_t>, std::optional<double>, Auto<int64_t>, Auto<double>,
                        Auto<bool>, std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;

// The keys of one section, in the order of the reference. It refers to the section's struct, which must outlive it.
class KeyTable {
 public:
  // A list has its range, or whether it may be empty text, for each item; an optional number is null when it is not set.
  template <KeyType T>
  void add(std::string name, T& field, KeyInfo info);

  template <class E>
  void add_choice(std::string name, E& field, const Choices<E>& choices, KeyInfo info) {
    std::vector<std::string> spellings;
    for (const auto& choice : choices) spellings.push_back(choice.first);
    add_spelled(
        std::move(name), spellings, [&field, choices](size_t index) { field = choices[index].second; },
        [&field, choices] {
          size_t index = 0;
          while (choices[index].second != field) ++index;
          return index;
        },
        std::move(info));
  }

  // A nested section: `name: {key: value, …}`, with the keys that `describe` adds.
  void add_section(std::string name, std::function<void(KeyTable&)> describe, std::string doc);

  // A nested section that may be null, which is the default.
  template <class Section>
  void add_section(std::string name, std::optional<Section>& field, std::string doc) {
    add_section(
        std::move(name), [&field](KeyTable& keys) { field->describe(keys); }, std::move(doc));
    auto& key = keys_.back();
    key.type = "section or null";
    key.has_section = [&field] { return field.has_value(); };
    key.set_section = [&field](bool there) { field = there ? std::optional(Section{}) : std::nullopt; };
    key.write = [] { return Node{}; };
  }

  // A list of sections, each written `- {key: value, …}`.
  template <class Section>
  void add_sections(std::string name, std::vector<Section>& field, std::string doc) {
    add_sections(
        std::move(name), [&field] { return field.size(); }, [&field](size_t count) { field.resize(count); },
        [&field](size_t index, KeyTable& keys) { field[index].describe(keys); }, std::move(doc));
  }

  // `name: COMPONENT` inside a section; the other keys there are those of the section and of the component. Empty `default_name`: required.
  void add_component(std::string name, ComponentConfig& component, const RegistryBase& registry, const std::string& default_name,
                     std::string doc);

  // A list of components, each written `- name: {key: value}` or `- name`.
  void add_components(std::string name, std::vector<ComponentConfig>& components, const RegistryBase& registry, std::string doc);

  // A contradiction between `key` and others of the section: the reader calls `find` once the section is read without a problem, and
  // reports its text at the position of `key`.
  void refuse(std::string key, std::function<std::string()> find) { checks_.push_back({std::move(key), false, std::move(find)}); }
  // The same for values that can be used but are hardly meant.
  void warn(std::string key, std::function<std::string()> find) { checks_.push_back({std::move(key), true, std::move(find)}); }

  const std::vector<Key>& keys() const { return keys_; }
  const std::vector<Check>& checks() const { return checks_; }

 private:
  void add_sections(std::string name, std::function<size_t()> count, std::function<void(size_t)> resize,
                    std::function<void(size_t, KeyTable&)> describe, std::string doc);
  void add_spelled(std::string name, const std::vector<std::string>& spellings, std::function<void(size_t)> set,
                   std::function<size_t()> get, KeyInfo info);

  std::vector<Key> keys_;
  std::vector<Check> checks_;
};

}  // namespace trainer::config
