#include "config/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/keys/key.h"
#include "base/text.h"
#include "base/url.h"
#include "config/yaml.h"

namespace trainer::config {
namespace {

std::string shown(const Node& node) {
  // Before it is cut, because a secret whose end is missing would not be found.
  auto text = without_secrets(to_inline_yaml(node));
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string with_hint(std::string text, const std::string& name, const std::vector<std::string>& candidates) {
  const auto near = nearest_name(name, candidates);
  return near.empty() ? text : text + fmt::format("; did you mean \"{}\"?", near);
}

// The end of the message about a value that the key does not accept: for a number, what is wrong with its notation, for null, how to write
// an empty text, and for a text, how to write a list. Empty for other values.
std::string hint_for(const Node& node, const Key& key) {
  if (node.kind == Node::Kind::kNull && key.type == "text" && !key.required && key.write().text.empty()) return "; write \"\" for none";
  const bool is_text = node.kind == Node::Kind::kScalar && !node.text.empty();
  if (is_text && (key.type == "list of texts" || key.type == "list of paths")) return fmt::format("; write it as [{}]", shown(node));
  const bool is_number = key.type.find("integer") != std::string::npos || key.type.find("number") != std::string::npos;
  if (!is_number || node.kind != Node::Kind::kScalar || node.quoted) return "";
  const auto text = std::string_view(node.text).substr(node.text.starts_with('-') ? 1 : 0);
  const bool is_hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  const bool has_leading_zero =
      text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9' && text.find_first_not_of("0123456789.eE+-") == text.npos;
  return is_hexadecimal || has_leading_zero ? "; write it as a decimal number without leading zeros" : "";
}

// The components of the registry that have a key of this name.
std::vector<std::string> owners_of(const std::string& key_name, const RegistryBase& registry) {
  std::vector<std::string> owners;
  for (const auto& component : registry.components()) {
    const auto options = component.make_options();
    if (SectionKeys(*options).find(key_name) != nullptr) owners.push_back(component.name);
  }
  return owners;
}

// The problem of a key that neither the section at `path` nor its component has. `chooser`: the key that names the component, or null.
std::string unknown_key(const Node::Member& member, const Node& section, const std::string& path, const Key* chooser,
                        const std::vector<std::string>& names) {
  const auto owners = chooser == nullptr ? std::vector<std::string>{} : owners_of(member.name, *chooser->registry);
  if (owners.empty()) return with_hint("unknown key", member.name, names);
  const auto& chosen = chooser->component->name;
  auto text = fmt::format("not a key of {}, but of {}", chosen, fmt::join(owners, ", "));
  const auto* choice = section.find(chooser->name);
  const bool overridden = choice != nullptr && choice->value.position.is_on_command_line() && !member.position.is_on_command_line();
  if (overridden) {
    text += fmt::format("; instead of {}.{}={}, replace the whole section, as in \"{}={{{}: {}}}\"", path, chooser->name, chosen, path,
                        chooser->name, chosen);
  }
  return text;
}

// Runs the checks of a section that was read without a problem.
void run_checks(const std::vector<Check>& checks, const Node& section, const std::string& path, Problems& problems) {
  for (const auto& check : checks) {
    const auto text = check.find();
    if (text.empty()) continue;
    const auto* member = section.find(check.key);
    const auto& position = member == nullptr ? section.position : member->value.position;
    problems.add(position, child_path(path, check.key), text, check.is_warning ? Problems::Kind::kWarning : Problems::Kind::kContradiction);
  }
}

// Sets `component` to the one that `node` names, with its default options. If it does not exist, adds a problem and returns false.
bool choose_component(const Node& node, const RegistryBase& registry, ComponentConfig& component, const std::string& path,
                      Problems& problems) {
  if (node.kind != Node::Kind::kScalar) {
    problems.add(node.position, path, fmt::format("expected a name, got {}", shown(node)));
    return false;
  }
  if (registry.find(node.text) == nullptr) {
    const auto names = registry.names();
    const auto problem = names.empty() ? fmt::format("there is no {} \"{}\"; list the library that defines it in the key plugins",
                                                     registry.product(), node.text)
                                       : fmt::format("\"{}\" is not one of {}", node.text, fmt::join(names, ", "));
    problems.add(node.position, path, with_hint(problem, node.text, names));
    return false;
  }
  component = registry.configure(node.text);
  return true;
}

// Returns the options of an item in a list of components as a section. The section is empty if only the name is given. If a list is given
// instead of options, it becomes the value of the component's first key that is a list of components.
Node section_of(Node values, const Position& position, const ComponentConfig& component) {
  Node section = Node::map(position);
  if (values.kind == Node::Kind::kNull) return section;
  if (values.kind != Node::Kind::kList) return values;
  const SectionKeys options(*component.options);
  const auto list = std::ranges::find_if(options.keys, [](const Key& key) { return key.components != nullptr; });
  if (list == options.keys.end()) return values;
  section.set(list->name, std::move(values));
  return section;
}

void read_components(const Node& node, const Key& key, const std::string& path, Problems& problems) {
  if (key.may_be_auto && node.kind == Node::Kind::kScalar && node.text == "auto") return key.set_components(std::nullopt);
  if (node.kind != Node::Kind::kList) {
    const auto names = key.registry->names();
    const auto example = names.empty() ? "" : fmt::format(" such as [{}]", names.front());
    problems.add(node.position, path, fmt::format("expected a list of components{}, got {}", example, shown(node)));
    return;
  }
  std::vector<ComponentConfig> components;
  for (size_t i = 0; i < node.items.size(); ++i) {
    const Node& item = node.items[i];
    const bool is_map = item.kind == Node::Kind::kMap && item.members.size() == 1;
    const auto item_path = fmt::format("{}[{}]", path, i);
    if (!is_map && item.kind != Node::Kind::kScalar) {
      problems.add(item.position, item_path,
                   fmt::format("expected one component, as `name` or `name: {{key: value}}`, got {}", shown(item)));
      continue;
    }
    Node name = is_map ? Node::scalar(item.members.front().name) : item;
    name.position = item.position;
    ComponentConfig component;
    if (!choose_component(name, *key.registry, component, item_path, problems)) continue;
    read_section(
        section_of(is_map ? item.members.front().value : Node{}, item.position, component),
        [&component](KeyTable& keys) { component.options->add_keys(keys); }, child_path(item_path, component.name), problems);
    components.push_back(std::move(component));
  }
  key.set_components(std::move(components));
}

void read_sections(const Node& node, const Key& key, const std::string& path, Problems& problems) {
  if (node.kind != Node::Kind::kList) {
    problems.add(node.position, path, fmt::format("expected a list of sections such as [{{key: value}}], got {}", shown(node)));
    return;
  }
  key.resize_sections(0);
  key.resize_sections(node.items.size());
  for (size_t i = 0; i < node.items.size(); ++i) {
    read_section(
        node.items[i], [&](KeyTable& keys) { key.section_at(i, keys); }, fmt::format("{}[{}]", path, i), problems);
  }
}

void read_value(const Node& node, const Key& key, const std::string& path, Problems& problems) {
  if (key.facts && key.facts->is_for_predictions) problems.need(path);
  if (key.section) {
    const bool may_be_null = key.set_section != nullptr;
    const bool is_null = node.kind == Node::Kind::kNull;
    if (may_be_null) key.set_section(!is_null);
    // A section is null in YAML if it has no keys, for example because all are commented out; it then has its defaults.
    if (!may_be_null || key.has_section()) read_section(is_null ? Node::map(node.position) : node, key.section, path, problems);
  } else if (key.section_at) {
    read_sections(node, key, path, problems);
  } else if (key.components != nullptr) {
    read_components(node, key, path, problems);
  } else if (key.read) {
    if (const auto expected = key.read(node)) {
      problems.add(node.position, path, fmt::format("expected {}, got {}{}", *expected, shown(node), hint_for(node, key)));
    }
  }
}

void remove_secrets(Node& node) {
  node.text = without_secrets(node.text);
  for (auto& item : node.items) remove_secrets(item);
}

}  // namespace

void read_section(const Node& node, const std::function<void(KeyTable&)>& describe, const std::string& path, Problems& problems) {
  const SectionKeys section(describe);
  if (node.kind != Node::Kind::kMap) {
    const bool may_be_a_name =
        node.kind == Node::Kind::kScalar && std::ranges::any_of(section.keys, [](const Key& key) { return key.component != nullptr; });
    problems.add(node.position, path,
                 fmt::format("expected a section of keys and values, got {}{}", shown(node),
                             may_be_a_name ? fmt::format("; write {{name: {}}}", shown(node)) : ""));
    return;
  }
  // The keys of the chosen component are in the same section as `name`. If the component is not valid, unknown keys are not reported,
  // because they may be its keys.
  bool component_known = true;
  const Key* chooser = nullptr;
  SectionKeys of_component;
  for (const auto& key : section.keys) {
    if (key.component == nullptr) continue;
    chooser = &key;
    const auto* member = node.find(key.name);
    if (member != nullptr)
      component_known = choose_component(member->value, *key.registry, *key.component, child_path(path, key.name), problems);
    component_known = component_known && key.component->options != nullptr;
    if (component_known) of_component = SectionKeys(*key.component->options);
  }
  for (const auto& key : of_component.keys) {
    if (section.find(key.name) == nullptr) continue;
    problems.add(
        node.position, child_path(path, key.name),
        fmt::format("this section already has a key \"{}\", so a component cannot add it; rename the key in the plug-in", key.name));
  }
  std::vector<Key> keys = section.keys;
  keys.insert(keys.end(), of_component.keys.begin(), of_component.keys.end());

  std::vector<std::string> names;
  for (const auto& key : keys) names.push_back(key.name);
  for (const auto& member : node.members) {
    const auto key = std::ranges::find(keys, member.name, &Key::name);
    if (key != keys.end()) {
      read_value(member.value, *key, child_path(path, member.name), problems);
    } else if (component_known) {
      problems.add_unknown_key(member.position, child_path(path, member.name), unknown_key(member, node, path, chooser, names));
    }
  }
  for (const auto& key : keys) {
    if (node.find(key.name) != nullptr) continue;
    if (key.required)
      problems.add(node.position, child_path(path, key.name), fmt::format("missing, and has no default; expected {}", key.type));
    if (key.section && !key.set_section) read_section(Node::map(node.position), key.section, child_path(path, key.name), problems);
  }
  if (!problems.is_readable(path)) return;
  run_checks(section.checks, node, path, problems);
  run_checks(of_component.checks, node, path, problems);
}

ComponentConfig read_component(const std::string& yaml, const std::string& source, const RegistryBase& registry) {
  ComponentConfig component;
  Problems problems;
  auto node = parse_yaml(yaml, source);
  if (node.kind == Node::Kind::kScalar) {
    auto section = Node::map();
    section.set("name", std::move(node));
    node = std::move(section);
  }
  read_section(
      node, [&](KeyTable& keys) { keys.add_component("name", component, registry, "", ""); }, registry.product(), problems);
  problems.throw_if_any();
  return component;
}

std::vector<ComponentConfig> read_components(const std::string& yaml, const std::string& source, const RegistryBase& registry) {
  std::vector<ComponentConfig> components;
  Problems problems;
  read_section(
      parse_yaml("components: " + yaml, source), [&](KeyTable& keys) { keys.add_components("components", components, registry, ""); }, "",
      problems);
  problems.throw_if_any();
  return components;
}

Node write_section(const std::function<void(KeyTable&)>& describe, KeyFacts facts) {
  const SectionKeys section(describe);
  Node node = Node::map();
  node.facts = facts;
  const auto options_of = [](const ComponentConfig& component, KeyFacts of_options) {
    return write_section([&component](KeyTable& keys) { component.options->add_keys(keys); }, of_options);
  };
  for (const auto& key : section.keys) {
    const auto own = key.facts.value_or(facts);
    Node value;
    if (key.section && (!key.has_section || key.has_section())) {
      value = write_section(key.section, own);
    } else if (key.section_at) {
      value = Node::list({});
      for (size_t i = 0; i < key.num_sections(); ++i) {
        value.items.push_back(write_section([&](KeyTable& keys) { key.section_at(i, keys); }));
      }
    } else if (key.component != nullptr) {
      value = Node::scalar(key.component->name, /*quoted=*/true);
    } else if (key.components != nullptr) {
      const auto components = key.components();
      value = components ? Node::list({}) : Node::scalar("auto");
      for (const auto& component : components.value_or(std::vector<ComponentConfig>{})) {
        value.items.push_back(Node::map());
        value.items.back().set(component.name, options_of(component, {}));
      }
    } else {
      value = key.write();
      remove_secrets(value);
    }
    value.facts = own;
    node.set(key.name, std::move(value));
    if (key.component == nullptr) continue;
    for (auto& member : options_of(*key.component, facts).members) node.set(member.name, std::move(member.value));
  }
  return node;
}

}  // namespace trainer::config
