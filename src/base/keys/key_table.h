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
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/keys/choices.h"
#include "base/keys/key.h"
#include "base/keys/node.h"
#include "base/keys/registry.h"

namespace trainer {

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
        std::move(name), [&field](KeyTable& keys) { describe(keys, *field); }, std::move(doc));
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
        [&field](size_t index, KeyTable& keys) { describe(keys, field[index]); }, std::move(doc));
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

// A section that describes itself. Options of the library do not know keys; for them there are functions of this name beside the section
// that holds them.
template <class Section>
requires requires(Section& section, KeyTable& keys) { section.describe(keys); }
void describe(KeyTable& keys, Section& section) { section.describe(keys); }

}  // namespace trainer
