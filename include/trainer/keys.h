#pragma once
// Keys of an experiment file: a section of the file is a plain struct whose members are initialised with the defaults, and its describe()
// binds each member to its key. This header needs no LibTorch.
//
//   struct HingeOptions {
//     double margin = 1;
//     void describe(trainer::KeyTable& keys) { keys.add("margin", margin, {.min = 0, .doc = "Score by which the right class must lead."});
//     }
//   };

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainer {

class KeyTable;
class RegistryBase;
struct Check;
struct ComponentConfig;
struct Key;
struct SectionKeys;

// The spellings of the values of an enum in an experiment file.
template <class E>
using Choices = std::vector<std::pair<std::string, E>>;

template <class E>
const std::string& spelling_of(E value, const Choices<E>& choices) {
  return std::ranges::find(choices, value, &std::pair<std::string, E>::second)->first;
}

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
  bool may_be_one = false;   // for a list of numbers: a single number is accepted as a list of one
};

// What the program must know of a key to compare two experiments.
struct KeyFacts {
  bool is_fixed_on_resume = false;  // a run cannot be resumed with another value
  bool affects_features = false;    // features that were cached with another value are not used (training.cache_features)
  bool is_for_predictions = false;  // predictions of the trained network depend on it
  // Whether the key chooses samples, so that `trainer eval --data` replaces it; the last three are paths of a file or folder with samples.
  enum class Samples { kNone, kChoice, kTraining, kValidation, kAll } samples = Samples::kNone;
};

template <class T, class... Types>
concept OneOf = (std::same_as<T, Types> || ...);
// The types of the members that KeyTable::add binds.
template <class T>
concept KeyType = OneOf<T, bool, int64_t, double, std::string, std::optional<int64_t>, std::optional<double>, Auto<int64_t>, Auto<double>,
                        Auto<bool>, Auto<std::vector<double>>, std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;

// The keys of one section, in the order of the reference. The table refers to the section's struct, which must outlive it.
class KeyTable {
 public:
  KeyTable();
  ~KeyTable();
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  // For a list, the range and may_be_empty apply to each item; an optional number is null if it is not set.
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
    add_optional_section(
        std::move(name), [&field] { return field.has_value(); },
        [&field](bool there) { field = there ? std::optional(Section{}) : std::nullopt; },
        [&field](KeyTable& keys) { describe(keys, *field); }, std::move(doc));
  }

  // A list of sections, each written `- {key: value, …}`.
  template <class Section>
  void add_sections(std::string name, std::vector<Section>& field, std::string doc) {
    add_sections(
        std::move(name), [&field] { return field.size(); }, [&field](size_t count) { field.resize(count); },
        [&field](size_t index, KeyTable& keys) { describe(keys, field[index]); }, std::move(doc));
  }

  // `name: COMPONENT` inside a section; the other keys of the section are its own and those of the component. Empty `default_name`: the key
  // is required.
  void add_component(std::string name, ComponentConfig& component, const RegistryBase& registry, const std::string& default_name,
                     std::string doc);

  // A list of components, each written `- name: {key: value}` or `- name`. If keys of a component are lists of components themselves, the
  // first of these keys need not be named: `- name: [a, b]`.
  void add_components(std::string name, std::vector<ComponentConfig>& components, const RegistryBase& registry, std::string doc);
  // A list that the program chooses if the file contains `auto`.
  void add_components(std::string name, Auto<std::vector<ComponentConfig>>& components, const RegistryBase& registry, std::string doc);

  // Checks for contradictions between `key` and other keys of the section: `find` is called after the section was read without a problem,
  // and its result is reported as an error at the position of `key`; empty: no error.
  void refuse(std::string key, std::function<std::string()> find);
  // The same for a warning about values that can be used but are probably unintended.
  void warn(std::string key, std::function<std::string()> find);

  // Sets the facts of a key, which are also those of the keys below it. Without this, a key has the facts of its section.
  void set_facts(const std::string& key, KeyFacts facts);

 private:
  friend struct SectionKeys;
  void add_optional_section(std::string name, std::function<bool()> has, std::function<void(bool)> set,
                            std::function<void(KeyTable&)> describe, std::string doc);
  void add_sections(std::string name, std::function<size_t()> count, std::function<void(size_t)> resize,
                    std::function<void(size_t, KeyTable&)> describe, std::string doc);
  void add_spelled(std::string name, const std::vector<std::string>& spellings, std::function<void(size_t)> set,
                   std::function<size_t()> get, KeyInfo info);

  std::vector<Key> keys_;
  std::vector<Check> checks_;
};

// For a section with a member function describe(). A struct can instead have a free function describe() in its namespace.
template <class Section>
requires requires(Section& section, KeyTable& keys) { section.describe(keys); }
void describe(KeyTable& keys, Section& section) { section.describe(keys); }

}  // namespace trainer
