#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <type_traits>

#include "base/keys/key.h"
#include "base/path.h"
#include "base/text.h"
#include "trainer/component.h"
#include "trainer/error.h"
#include "trainer/keys.h"

namespace trainer {
namespace {

// A short text that every YAML parser reads back as the same number.
template <class T>
std::string number_text(T value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return portable_number({buffer, end});
}

bool in_range(double value, const KeyInfo& info) {
  return (info.min_excluded ? value > info.min : value >= info.min) && (info.max_excluded ? value < info.max : value <= info.max);
}

// ">= 1", "> 0", "0 to 1", "0 to 1 (1 excluded)"; empty if there is no bound.
std::string range_text(const KeyInfo& info) {
  const bool has_min = std::isfinite(info.min);
  const bool has_max = std::isfinite(info.max);
  if (!has_max) return has_min ? fmt::format("{} {}", info.min_excluded ? ">" : ">=", number_text(info.min)) : "";
  if (!has_min) return fmt::format("{} {}", info.max_excluded ? "<" : "<=", number_text(info.max));
  auto text = fmt::format("{} to {}", number_text(info.min), number_text(info.max));
  if (info.min_excluded) text += fmt::format(" ({} excluded)", number_text(info.min));
  if (info.max_excluded) text += fmt::format(" ({} excluded)", number_text(info.max));
  return text;
}

Key make_key(std::string name, std::string type, const KeyInfo& info) {
  Key key;
  static_cast<KeyInfo&>(key) = info;
  key.name = std::move(name);
  key.type = std::move(type);
  key.range = range_text(info);
  return key;
}

bool has_control_characters(std::string_view text) {
  while (!text.empty()) {
    const auto first = first_character(text);
    if (first.length > 0 && is_control(first.code_point)) return true;
    text.remove_prefix(std::max<size_t>(first.length, 1));
  }
  return false;
}

bool is_word(const Node& node, std::string_view word) { return node.kind == Node::Kind::kScalar && node.text == word; }

template <class T>
std::string type_text(const KeyInfo& info) {
  if constexpr (std::is_same_v<T, bool>) {
    return "true | false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return info.is_path ? "path" : "text";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return std::is_integral_v<T> ? "integer" : "number";
  } else {
    const auto one = type_text<typename T::value_type>(info);
    return fmt::format("{}list of {}s", info.may_be_one ? one + " or " : "", one);
  }
}

// Whether another digit follows a leading zero: some programs read such a number as octal, others as decimal.
bool has_leading_zero(std::string_view text) {
  const auto digits = text.substr(text.starts_with('-') ? 1 : 0);
  return digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9';
}

// read_value() sets the field; on failure it leaves it unchanged and returns what was expected.
template <class T>
std::optional<std::string> read_value(const Node& node, const KeyInfo& info, T& field) {
  const bool may_be_number = node.kind == Node::Kind::kScalar && !node.quoted && !has_leading_zero(node.text);
  const auto value = may_be_number ? parse_number<T>(node.text) : std::nullopt;
  if (value && std::isfinite(static_cast<double>(*value)) && in_range(static_cast<double>(*value), info)) {
    field = *value;
    return std::nullopt;
  }
  const std::string one = std::is_integral_v<T> ? "an integer" : "a number";
  const auto range = range_text(info);
  return range.empty() ? one : fmt::format("{} {}{}", one, std::isfinite(info.max) ? "from " : "", range);
}

std::optional<std::string> read_value(const Node& node, const KeyInfo&, bool& field) {
  if (node.quoted || (!is_word(node, "true") && !is_word(node, "false"))) return "true or false";
  field = node.text == "true";
  return std::nullopt;
}

std::optional<std::string> read_value(const Node& node, const KeyInfo& info, std::string& field) {
  const std::string expected = info.is_path ? "a path" : "text";
  if (node.kind != Node::Kind::kScalar || (node.text.empty() && !info.may_be_empty)) return expected;
  if (has_control_characters(node.text)) return expected + " without control characters";
  try {
    field = info.is_path ? expand_path(node.text) : node.text;
  } catch (const Error& error) {
    return fmt::format("{} ({})", expected, error.what());
  }
  return std::nullopt;
}

template <class T>
std::optional<std::string> read_value(const Node& node, const KeyInfo& info, std::vector<T>& field) {
  T one{};
  auto expected = read_value(node, info, one);
  if (info.may_be_one && !expected) {
    field = {one};
    return std::nullopt;
  }
  const std::string before = info.may_be_one ? *expected + ", or " : "";
  std::vector<T> given(node.items.size());
  expected = node.kind == Node::Kind::kList ? std::nullopt : read_value(Node{}, info, one);
  for (size_t i = 0; i < given.size() && !expected; ++i) expected = read_value(node.items[i], info, given[i]);
  if (expected) return fmt::format("{}a list, each item {}", before, *expected);
  field = std::move(given);
  return std::nullopt;
}

template <class T>
Node write_value(T value, const KeyInfo&) {
  return Node::scalar(number_text(value));
}

Node write_value(bool value, const KeyInfo&) { return Node::scalar(value ? "true" : "false"); }

Node write_value(const std::string& text, const KeyInfo&) { return Node::scalar(text, /*quoted=*/true); }

template <class T>
Node write_value(const std::vector<T>& values, const KeyInfo& info) {
  if (info.may_be_one && values.size() == 1) return write_value(values.front(), info);
  std::vector<Node> items;
  for (const auto& value : values) items.push_back(write_value(value, info));
  return Node::list(std::move(items));
}

template <class T>
Key key_of(std::string name, T& field, const KeyInfo& info) {
  auto key = make_key(std::move(name), type_text<T>(info), info);
  key.read = [&field, info](const Node& node) { return read_value(node, info, field); };
  key.write = [&field, info] { return write_value(field, info); };
  return key;
}

// A key whose value may also be `word` (null or auto), which leaves the field empty.
template <class T>
Key key_or_word(const std::string& word, std::string name, std::optional<T>& field, const KeyInfo& info) {
  constexpr bool kIsBool = std::is_same_v<T, bool>;
  auto key = make_key(std::move(name), fmt::format("{}{}{}", type_text<T>(info), kIsBool ? " | " : " or ", word), info);
  T none{};
  const auto one = *read_value(Node{}, info, none);
  const auto expected = kIsBool                   ? "true, false or " + word
                        : std::is_arithmetic_v<T> ? fmt::format("{} or {}", one, word)
                                                  : fmt::format("{} or {}", word, one);
  const bool is_null = word == "null";
  key.read = [&field, info, word, is_null, expected](const Node& node) -> std::optional<std::string> {
    T given{};
    const bool is_empty = is_null ? node.kind == Node::Kind::kNull : is_word(node, word);
    if (!is_empty && read_value(node, info, given)) return expected;
    field = is_empty ? std::nullopt : std::optional(given);
    return std::nullopt;
  };
  key.write = [&field, info, word, is_null] { return field ? write_value(*field, info) : is_null ? Node{} : Node::scalar(word); };
  return key;
}

template <class T>
Key key_of(std::string name, std::optional<T>& field, const KeyInfo& info) {
  return key_or_word("null", std::move(name), field, info);
}

template <class T>
Key key_of(std::string name, Auto<T>& field, const KeyInfo& info) {
  return key_or_word("auto", std::move(name), field.value, info);
}

}  // namespace

KeyTable::KeyTable() = default;
KeyTable::~KeyTable() = default;

template <KeyType T>
void KeyTable::add(std::string name, T& field, KeyInfo info) {
  keys_.push_back(key_of(std::move(name), field, info));
}

template void KeyTable::add(std::string, bool&, KeyInfo);
template void KeyTable::add(std::string, int64_t&, KeyInfo);
template void KeyTable::add(std::string, double&, KeyInfo);
template void KeyTable::add(std::string, std::string&, KeyInfo);
template void KeyTable::add(std::string, std::optional<int64_t>&, KeyInfo);
template void KeyTable::add(std::string, std::optional<double>&, KeyInfo);
template void KeyTable::add(std::string, Auto<int64_t>&, KeyInfo);
template void KeyTable::add(std::string, Auto<double>&, KeyInfo);
template void KeyTable::add(std::string, Auto<bool>&, KeyInfo);
template void KeyTable::add(std::string, Auto<std::vector<double>>&, KeyInfo);
template void KeyTable::add(std::string, std::vector<int64_t>&, KeyInfo);
template void KeyTable::add(std::string, std::vector<double>&, KeyInfo);
template void KeyTable::add(std::string, std::vector<std::string>&, KeyInfo);

void KeyTable::add_section(std::string name, std::function<void(KeyTable&)> describe_section, std::string doc) {
  Key key = make_key(std::move(name), "section", {.doc = std::move(doc)});
  key.section = std::move(describe_section);
  keys_.push_back(std::move(key));
}

void KeyTable::add_optional_section(std::string name, std::function<bool()> has, std::function<void(bool)> set,
                                    std::function<void(KeyTable&)> describe_section, std::string doc) {
  add_section(std::move(name), std::move(describe_section), std::move(doc));
  auto& key = keys_.back();
  key.type = "section or null";
  key.has_section = std::move(has);
  key.set_section = std::move(set);
  key.write = [] { return Node{}; };
}

void KeyTable::set_facts(const std::string& key, KeyFacts facts) {
  const auto found = std::ranges::find(keys_, key, &Key::name);
  if (found == keys_.end()) throw std::logic_error(fmt::format("facts are set for the key {}, which was not added before", key));
  found->facts = facts;
}

void KeyTable::refuse(std::string key, std::function<std::string()> find) { checks_.push_back({std::move(key), false, std::move(find)}); }
void KeyTable::warn(std::string key, std::function<std::string()> find) { checks_.push_back({std::move(key), true, std::move(find)}); }

void KeyTable::add_sections(std::string name, std::function<size_t()> count, std::function<void(size_t)> resize,
                            std::function<void(size_t, KeyTable&)> describe, std::string doc) {
  Key key = make_key(std::move(name), "list of sections", {.doc = std::move(doc)});
  key.num_sections = std::move(count);
  key.resize_sections = std::move(resize);
  key.section_at = std::move(describe);
  keys_.push_back(std::move(key));
}

void KeyTable::add_component(std::string name, ComponentConfig& component, const RegistryBase& registry, const std::string& default_name,
                             std::string doc) {
  if (component.options == nullptr && !default_name.empty()) component = registry.configure(default_name);
  Key key = make_key(std::move(name), join(registry.names(), " | "), {.doc = std::move(doc), .required = default_name.empty()});
  key.registry = &registry;
  key.component = &component;
  keys_.push_back(std::move(key));
}

void KeyTable::add_components(std::string name, std::vector<ComponentConfig>& components, const RegistryBase& registry, std::string doc) {
  Key key = make_key(std::move(name), "list of components", {.doc = std::move(doc)});
  key.registry = &registry;
  key.components = [&components] { return components; };
  key.set_components = [&components](std::optional<std::vector<ComponentConfig>> items) { components = std::move(*items); };
  keys_.push_back(std::move(key));
}

void KeyTable::add_components(std::string name, Auto<std::vector<ComponentConfig>>& components, const RegistryBase& registry,
                              std::string doc) {
  Key key = make_key(std::move(name), "list of components or auto", {.doc = std::move(doc)});
  key.registry = &registry;
  key.components = [&components] { return components.value; };
  key.set_components = [&components](std::optional<std::vector<ComponentConfig>> items) { components.value = std::move(items); };
  key.may_be_auto = true;
  keys_.push_back(std::move(key));
}

void KeyTable::add_spelled(std::string name, const std::vector<std::string>& spellings, std::function<void(size_t)> set,
                           std::function<size_t()> get, KeyInfo info) {
  Key key = make_key(std::move(name), join(spellings, " | "), info);
  key.choices = spellings;
  key.read = [spellings, set = std::move(set)](const Node& node) -> std::optional<std::string> {
    for (size_t i = 0; i < spellings.size(); ++i) {
      if (is_word(node, spellings[i])) {
        set(i);
        return std::nullopt;
      }
    }
    return "one of " + join(spellings, ", ");
  };
  key.write = [spellings, get = std::move(get)] { return Node::scalar(spellings[get()], /*quoted=*/true); };
  keys_.push_back(std::move(key));
}

std::vector<std::string> RegistryBase::names() const {
  std::vector<std::string> names;
  for (const auto& component : components_) names.push_back(component.name);
  return names;
}

const Component* RegistryBase::find(const std::string& name) const {
  const auto found = std::ranges::find(components_, name, &Component::name);
  return found == components_.end() ? nullptr : &*found;
}

ComponentConfig RegistryBase::configure(const std::string& name) const { return {name, components_[index_of(name)].make_options()}; }

void RegistryBase::add(Component component) {
  if (find(component.name) != nullptr) {
    throw std::logic_error(fmt::format("two components of the {} registry are named \"{}\"", product_, component.name));
  }
  components_.push_back(std::move(component));
}

size_t RegistryBase::index_of(const std::string& name) const {
  const auto* component = find(name);
  if (component == nullptr) throw std::logic_error(fmt::format("the {} registry has no component \"{}\"", product_, name));
  return static_cast<size_t>(component - components_.data());
}

void check_values(const SectionKeys& table, const std::string& path) {
  for (const auto& key : table.keys) {
    if (key.section && (!key.has_section || key.has_section())) check_values(SectionKeys(key.section), child_path(path, key.name));
    for (size_t i = 0; key.section_at && i < key.num_sections(); ++i) {
      check_values(SectionKeys([&](KeyTable& keys) { key.section_at(i, keys); }), fmt::format("{}[{}]", child_path(path, key.name), i));
    }
    if (!key.read || !key.write) continue;
    const auto value = key.write();
    if (const auto expected = key.read(value)) {
      throw UsageError(fmt::format("{}: expected {}, not {}", child_path(path, key.name), *expected, value.text));
    }
  }
  for (const auto& check : table.checks) {
    if (check.is_warning) continue;
    if (const auto problem = check.find(); !problem.empty()) throw UsageError(fmt::format("{}: {}", child_path(path, check.key), problem));
  }
}

void RegistryBase::check_values(const ComponentConfig& config) { trainer::check_values(SectionKeys(*config.options), config.name); }

void RegistryBase::throw_wrong_options(const std::string& name) {
  throw std::logic_error(fmt::format("the options given for \"{}\" belong to another component", name));
}

}  // namespace trainer
