#include "config/key_table.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace trainer::config {
namespace {

std::string number_text(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

std::optional<double> number_in(const Node& node) {
  if (node.kind != Node::Kind::kScalar || node.quoted) return std::nullopt;
  double value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto result = std::from_chars(node.text.data(), end, value);
  if (result.ec != std::errc{} || result.ptr != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> integer_in(const Node& node) {
  if (node.kind != Node::Kind::kScalar || node.quoted) return std::nullopt;
  int64_t value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto result = std::from_chars(node.text.data(), end, value);
  if (result.ec != std::errc{} || result.ptr != end) return std::nullopt;
  return value;
}

bool in_range(double value, const KeyInfo& info) {
  return (info.min_excluded ? value > info.min : value >= info.min) && (info.max_excluded ? value < info.max : value <= info.max);
}

// ">= 1", "> 0", "0 to 1", "0 to 1 (1 excluded)"; empty for no bound.
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

// Numbers just outside the range, as YAML.
std::vector<std::string> numbers_out_of_range(const KeyInfo& info) {
  std::vector<std::string> refused;
  if (std::isfinite(info.min)) refused.push_back(number_text(info.min_excluded ? info.min : info.min - 1));
  if (std::isfinite(info.max)) refused.push_back(number_text(info.max_excluded ? info.max : info.max + 1));
  return refused;
}

Key describe(std::string name, std::string type, const KeyInfo& info) {
  Key key;
  key.name = std::move(name);
  key.type = std::move(type);
  key.range = range_text(info);
  key.unit = info.unit;
  key.doc = info.doc;
  key.required = info.required;
  return key;
}

// How one kind of number is read and written, so that numbers, lists of them and numbers that may be null or auto share one path.
template <class T>
struct NumberFormat;

template <>
struct NumberFormat<int64_t> {
  static constexpr const char* kType = "integer";
  static constexpr const char* kOne = "an integer";
  static constexpr const char* kWrongType = "1.5";
  static std::optional<int64_t> read(const Node& node) { return integer_in(node); }
  static std::string write(int64_t value) { return std::to_string(value); }
};

template <>
struct NumberFormat<double> {
  static constexpr const char* kType = "number";
  static constexpr const char* kOne = "a number";
  static constexpr const char* kWrongType = "many";
  static std::optional<double> read(const Node& node) { return number_in(node); }
  static std::string write(double value) { return number_text(value); }
};

template <class T>
std::optional<T> read_number(const Node& node, const KeyInfo& info) {
  const auto value = NumberFormat<T>::read(node);
  return value && in_range(static_cast<double>(*value), info) ? value : std::nullopt;
}

template <class T>
std::string expectation(const KeyInfo& info) {
  const auto range = range_text(info);
  return range.empty() ? NumberFormat<T>::kOne
                       : fmt::format("{} {}{}", NumberFormat<T>::kOne, std::isfinite(info.max) ? "from " : "", range);
}

template <class T>
Key number_key(std::string name, T& field, const KeyInfo& info) {
  Key key = describe(std::move(name), NumberFormat<T>::kType, info);
  key.read = [&field, info](const Node& node) -> std::optional<std::string> {
    const auto value = read_number<T>(node, info);
    if (!value) return expectation<T>(info);
    field = *value;
    return std::nullopt;
  };
  key.write = [&field] { return Node::scalar(NumberFormat<T>::write(field)); };
  key.refused_examples = numbers_out_of_range(info);
  key.refused_examples.emplace_back(NumberFormat<T>::kWrongType);
  return key;
}

// A number, or a word (null, auto) for a field without a value.
template <class T>
Key optional_number_key(std::string name, std::optional<T>& field, const std::string& word, const KeyInfo& info) {
  Key key = describe(std::move(name), fmt::format("{} or {}", NumberFormat<T>::kType, word), info);
  const bool word_is_null = word == "null";
  key.read = [&field, info, word, word_is_null](const Node& node) -> std::optional<std::string> {
    const bool is_word = word_is_null ? node.kind == Node::Kind::kNull : node.kind == Node::Kind::kScalar && node.text == word;
    const auto value = is_word ? std::nullopt : read_number<T>(node, info);
    if (!is_word && !value) return fmt::format("{} or {}", expectation<T>(info), word);
    field = value;
    return std::nullopt;
  };
  key.write = [&field, word, word_is_null] {
    if (field) return Node::scalar(NumberFormat<T>::write(*field));
    return word_is_null ? Node{} : Node::scalar(word);
  };
  key.refused_examples = numbers_out_of_range(info);
  key.refused_examples.emplace_back(NumberFormat<T>::kWrongType);
  return key;
}

template <class T>
Key number_list_key(std::string name, std::vector<T>& field, const KeyInfo& info) {
  Key key = describe(std::move(name), fmt::format("list of {}s", NumberFormat<T>::kType), info);
  key.read = [&field, info](const Node& node) -> std::optional<std::string> {
    std::vector<T> values;
    for (const auto& item : node.items) {
      const auto value = read_number<T>(item, info);
      if (value) values.push_back(*value);
    }
    if (node.kind != Node::Kind::kList || values.size() != node.items.size())
      return fmt::format("a list, each item {}", expectation<T>(info));
    field = std::move(values);
    return std::nullopt;
  };
  key.write = [&field] {
    std::vector<Node> items;
    for (const auto value : field) items.push_back(Node::scalar(NumberFormat<T>::write(value)));
    return Node::list(std::move(items));
  };
  for (const auto& number : numbers_out_of_range(info)) key.refused_examples.push_back("[" + number + "]");
  key.refused_examples.push_back(fmt::format("[{}]", NumberFormat<T>::kWrongType));
  key.refused_examples.emplace_back("1");
  return key;
}

std::optional<bool> bool_in(const Node& node) {
  if (node.kind != Node::Kind::kScalar || node.quoted) return std::nullopt;
  if (node.text == "true") return true;
  if (node.text == "false") return false;
  return std::nullopt;
}

const char* bool_text(bool value) { return value ? "true" : "false"; }

}  // namespace

void KeyTable::add(std::string name, bool& field, KeyInfo info) {
  Key key = describe(std::move(name), "true | false", info);
  key.read = [&field](const Node& node) -> std::optional<std::string> {
    const auto value = bool_in(node);
    if (!value) return "true or false";
    field = *value;
    return std::nullopt;
  };
  key.write = [&field] { return Node::scalar(bool_text(field)); };
  key.refused_examples = {"yes", "1"};
  keys_.push_back(std::move(key));
}

void KeyTable::add(std::string name, int64_t& field, KeyInfo info) { keys_.push_back(number_key(std::move(name), field, info)); }
void KeyTable::add(std::string name, double& field, KeyInfo info) { keys_.push_back(number_key(std::move(name), field, info)); }

void KeyTable::add(std::string name, std::string& field, KeyInfo info) {
  Key key = describe(std::move(name), "text", info);
  key.read = [&field](const Node& node) -> std::optional<std::string> {
    if (node.kind != Node::Kind::kScalar) return "text";
    field = node.text;
    return std::nullopt;
  };
  key.write = [&field] { return Node::scalar(field); };
  key.refused_examples = {"[a]", "null"};
  keys_.push_back(std::move(key));
}

void KeyTable::add(std::string name, std::optional<int64_t>& field, KeyInfo info) {
  keys_.push_back(optional_number_key(std::move(name), field, "null", info));
}

void KeyTable::add(std::string name, std::optional<double>& field, KeyInfo info) {
  keys_.push_back(optional_number_key(std::move(name), field, "null", info));
}

void KeyTable::add(std::string name, Auto<int64_t>& field, KeyInfo info) {
  keys_.push_back(optional_number_key(std::move(name), field.value, "auto", info));
}

void KeyTable::add(std::string name, Auto<bool>& field, KeyInfo info) {
  Key key = describe(std::move(name), "true | false | auto", info);
  key.read = [&field](const Node& node) -> std::optional<std::string> {
    const bool is_auto = node.kind == Node::Kind::kScalar && node.text == "auto";
    const auto value = bool_in(node);
    if (!is_auto && !value) return "true, false or auto";
    field.value = value;
    return std::nullopt;
  };
  key.write = [&field] { return Node::scalar(field.value ? bool_text(*field.value) : "auto"); };
  key.refused_examples = {"maybe", "[]"};
  keys_.push_back(std::move(key));
}

void KeyTable::add(std::string name, std::vector<int64_t>& field, KeyInfo info) {
  keys_.push_back(number_list_key(std::move(name), field, info));
}

void KeyTable::add(std::string name, std::vector<double>& field, KeyInfo info) {
  keys_.push_back(number_list_key(std::move(name), field, info));
}

void KeyTable::add_section(std::string name, std::function<void(KeyTable&)> describe_section, std::string doc) {
  Key key;
  key.name = std::move(name);
  key.type = "section";
  key.doc = std::move(doc);
  key.section = std::move(describe_section);
  key.refused_examples = {"5", "[]"};
  keys_.push_back(std::move(key));
}

void KeyTable::add_component(std::string name, ComponentConfig& component, const RegistryBase& registry, const std::string& default_name,
                             std::string doc) {
  if (component.options == nullptr && !default_name.empty()) component = registry.configure(default_name);
  Key key = describe(std::move(name), fmt::format("{}", fmt::join(registry.names(), " | ")),
                     {.doc = std::move(doc), .required = default_name.empty()});
  key.registry = &registry;
  key.component = &component;
  key.refused_examples = {"no_such_part", "[]", "null"};
  keys_.push_back(std::move(key));
}

void KeyTable::add_components(std::string name, std::vector<ComponentConfig>& components, const RegistryBase& registry, std::string doc) {
  Key key = describe(std::move(name), "list of parts", {.doc = std::move(doc)});
  key.registry = &registry;
  key.components = &components;
  key.refused_examples = {"5", "[no_such_part]", "[[]]"};
  keys_.push_back(std::move(key));
}

void KeyTable::add_spelled(std::string name, const std::vector<std::string>& spellings, std::function<void(size_t)> set,
                           std::function<size_t()> get, KeyInfo info) {
  Key key = describe(std::move(name), fmt::format("{}", fmt::join(spellings, " | ")), info);
  key.read = [spellings, set = std::move(set)](const Node& node) -> std::optional<std::string> {
    for (size_t i = 0; i < spellings.size(); ++i) {
      if (node.kind == Node::Kind::kScalar && node.text == spellings[i]) {
        set(i);
        return std::nullopt;
      }
    }
    return fmt::format("one of {}", fmt::join(spellings, ", "));
  };
  key.write = [spellings, get = std::move(get)] { return Node::scalar(spellings[get()]); };
  key.refused_examples = {"no_such_choice", "[]", "null"};
  keys_.push_back(std::move(key));
}

}  // namespace trainer::config
