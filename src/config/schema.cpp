#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/keys/key.h"
#include "config/experiment.h"

namespace trainer::config {
namespace {

using Json = nlohmann::ordered_json;

// Whole numbers are written without a fraction.
Json bound(double value) {
  constexpr double kLargestExact = 9007199254740992;
  return std::trunc(value) == value && std::abs(value) < kLargestExact ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json number_schema(const char* type, const KeyInfo& info) {
  Json schema = {{"type", type}};
  if (std::isfinite(info.min)) schema[info.min_excluded ? "exclusiveMinimum" : "minimum"] = bound(info.min);
  if (std::isfinite(info.max)) schema[info.max_excluded ? "exclusiveMaximum" : "maximum"] = bound(info.max);
  return schema;
}

// `type`: a part of Key::type, such as "list of numbers".
Json schema_of_type(std::string_view type, const KeyInfo& info) {
  if (type == "integer" || type == "number") return number_schema(type == "integer" ? "integer" : "number", info);
  if (type == "null") return {{"type", "null"}};
  if (type == "auto") return {{"const", "auto"}};
  if (type == "true | false") return {{"type", "boolean"}};
  if (type == "text" || type == "path") {
    // For text, the program also accepts what YAML reads as a number or a boolean, as in `experiment: 17`.
    Json schema = {{"type", {"string", "number", "boolean"}}};
    if (!info.may_be_empty) schema["minLength"] = 1;
    return schema;
  }
  constexpr std::string_view kList = "list of ";
  if (type.starts_with(kList) && type.ends_with('s')) {
    return {{"type", "array"}, {"items", schema_of_type(type.substr(kList.size(), type.size() - kList.size() - 1), info)}};
  }
  throw std::logic_error("a key has the type " + std::string(type) + ", which has no schema");
}

// Without alternatives (a registry that only plug-ins fill), the schema accepts nothing.
Json any_of(std::vector<Json> alternatives) {
  if (alternatives.empty()) return {{"not", Json::object()}};
  return alternatives.size() == 1 ? std::move(alternatives.front()) : Json{{"anyOf", std::move(alternatives)}};
}

// The schema of a key that is neither a section nor a component.
Json schema_of_value(const Key& key) {
  if (!key.choices.empty()) return {{"enum", key.choices}};
  std::string_view type = key.type;
  constexpr std::string_view kOrAuto = " | auto", kOr = " or ";
  std::vector<Json> alternatives;
  if (type.ends_with(kOrAuto)) {
    alternatives.push_back(schema_of_type("auto", key));
    type.remove_suffix(kOrAuto.size());
  }
  for (auto at = type.find(kOr); at != type.npos; at = type.find(kOr)) {
    alternatives.push_back(schema_of_type(type.substr(0, at), key));
    type.remove_prefix(at + kOr.size());
  }
  alternatives.push_back(schema_of_type(type, key));
  return any_of(std::move(alternatives));
}

// A section without keys is null in YAML and has its defaults.
Json or_null(Json schema) { return any_of({std::move(schema), {{"type", "null"}}}); }

class SchemaWriter {
 public:
  explicit SchemaWriter(const Registries& registries) : registries_(registries) {}

  Json write() {
    Experiment experiment;
    auto schema = section(SectionKeys([&](KeyTable& keys) { experiment.describe(keys, registries_); }), "");
    schema["properties"]["base"] = {
        {"description", "Experiment files on which this file is based; paths are relative to this file's folder."},
        {"anyOf", {{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}}}}};
    schema["$schema"] = "http://json-schema.org/draft-07/schema#";
    schema["title"] = "Experiment file of trainer";
    schema["definitions"] = std::move(definitions_);
    return schema;
  }

 private:
  static Json described(Json schema, const std::string& doc) {
    Json result = {{"description", doc}};
    result.update(schema);
    return result;
  }

  // No key of a section is required, because a base may contain it. `path`: the path of the section, for the names of definitions.
  Json section(const SectionKeys& table, const std::string& path) {
    const auto chooser = std::ranges::find_if(table.keys, [](const Key& key) { return key.component != nullptr; });
    if (chooser == table.keys.end()) return object(table.keys, path);
    std::vector<Json> alternatives;
    for (const auto& component : chooser->registry->components()) {
      const auto name = path + '.' + component.name;
      const auto options = component.make_options();
      const SectionKeys of_component(*options);
      auto keys = table.keys;
      keys.insert(keys.end(), of_component.keys.begin(), of_component.keys.end());
      auto schema = object(keys, path);
      schema["properties"][chooser->name] = {{"description", component.doc}, {"const", component.name}};
      definitions_[name] = std::move(schema);
      alternatives.push_back({{"$ref", "#/definitions/" + name}});
    }
    return any_of(std::move(alternatives));
  }

  Json object(const std::vector<Key>& keys, const std::string& path) {
    Json schema = {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
    for (const auto& key : keys) {
      if (key.component == nullptr) schema["properties"][key.name] = described(value(key, child_path(path, key.name)), key.doc);
    }
    return schema;
  }

  // An item of a list: lists are not merged with those of a base, so items are complete.
  Json item_of_list(const std::vector<Key>& keys, const std::string& path) {
    auto schema = object(keys, path);
    for (const auto& key : keys) {
      if (key.required) schema["required"].push_back(key.name);
    }
    return schema;
  }

  Json value(const Key& key, const std::string& path) {
    if (key.section) {
      if (key.set_section) key.set_section(true);
      auto schema = or_null(section(SectionKeys(key.section), path));
      if (key.set_section) key.set_section(false);
      return schema;
    }
    if (key.section_at) {
      key.resize_sections(1);
      const SectionKeys item([&](KeyTable& keys) { key.section_at(0, keys); });
      Json schema = {{"type", "array"}, {"items", item_of_list(item.keys, path)}};
      key.resize_sections(0);
      return schema;
    }
    if (key.components == nullptr) return schema_of_value(key);
    Json list = {{"type", "array"}, {"items", {{"$ref", "#/definitions/" + define_parts(*key.registry)}}}};
    return key.may_be_auto ? any_of({{{"const", "auto"}}, std::move(list)}) : list;
  }

  // Adds the definition of one item of a list of components and returns its name.
  std::string define_parts(const RegistryBase& registry) {
    auto name = registry.product();
    if (definitions_.contains(name)) return name;
    definitions_[name] = {};  // defined first, because its items may refer to it
    auto names = Json::array();
    std::vector<Json> alternatives;
    for (const auto& component : registry.components()) {
      const auto options = component.make_options();
      const auto keys = SectionKeys(*options).keys;
      const auto schema = item_of_list(keys, name + '.' + component.name);
      if (!schema.contains("required")) names.push_back(component.name);
      auto with_keys = schema.contains("required") ? std::vector<Json>{schema} : std::vector<Json>{schema, {{"type", "null"}}};
      const auto list = std::ranges::find_if(keys, [](const Key& key) { return key.components != nullptr; });
      if (list != keys.end()) with_keys.push_back(value(*list, ""));
      alternatives.push_back({{"type", "object"},
                              {"properties", {{component.name, described(any_of(std::move(with_keys)), component.doc)}}},
                              {"required", {component.name}},
                              {"additionalProperties", false}});
    }
    if (!names.empty()) alternatives.push_back({{"enum", std::move(names)}});
    definitions_[name] = any_of(std::move(alternatives));
    return name;
  }

  const Registries& registries_;
  Json definitions_ = Json::object();
};

}  // namespace

Json schema(const Registries& registries) { return SchemaWriter(registries).write(); }

}  // namespace trainer::config
