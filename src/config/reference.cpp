#include "config/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/keys/key.h"
#include "base/text.h"
#include "config/experiment.h"
#include "config/reader.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

// One table of the reference: the keys of a section, of a component or of the top level.
struct Table {
  std::string title;  // "dataloader", "optimizer, name: sgd"
  std::string path;   // the name by which a user selects it: "dataloader", "optimizer.sgd"; empty: the top level
  // The section of its keys on the command line: "optimizer" for "optimizer, name: sgd"; empty: the top level; nullopt: the keys are those
  // of list items.
  std::optional<std::string> section;
  std::string doc;
  std::vector<Key> keys;
};

std::string default_text(const Key& key) {
  if (key.required) return "required";
  if (key.component != nullptr) return key.component->name;
  if (key.may_be_auto) return "auto";
  if (key.components != nullptr || key.section_at) return "[]";
  if (key.section && !key.set_section) return to_inline_yaml(write_section(key.section));
  return to_inline_yaml(key.write());
}

// Calls `visit` with each table: the top level, each section, and each component that a section or a list may name. The tables refer
// to `experiment` and to the components' options, which exist while `visit` runs.
template <class Visit>
void for_each_table(const Registries& registries, const Visit& visit) {
  Experiment experiment;
  const SectionKeys top([&](KeyTable& keys) { experiment.describe(keys, registries); });
  std::vector<Key> plain;
  for (const auto& key : top.keys) {
    if (!key.section) plain.push_back(key);
  }
  visit(Table{"top level", "", "", "", plain});
  std::vector<const RegistryBase*> lists;  // the registries of the keys that are lists of components
  const auto add_list = [&](const Key& key) {
    if (key.components != nullptr && std::ranges::find(lists, key.registry) == lists.end()) lists.push_back(key.registry);
  };
  // `section`: nullopt for the components of a list.
  const auto visit_components = [&](const std::optional<std::string>& section, const RegistryBase& registry) {
    for (const auto& component : registry.components()) {
      const auto options = component.make_options();
      const SectionKeys of_component(*options);
      const auto title = section ? *section + ", name: " : registry.product() + ' ';
      const auto path = section.value_or(registry.product()) + '.';
      visit(Table{title + component.name, path + component.name, section, component.doc, of_component.keys});
      for (const auto& key : of_component.keys) add_list(key);
    }
  };
  const std::function<void(const std::vector<Key>&, const std::string&)> visit_sections = [&](const auto& keys, const auto& section) {
    for (const auto& key : keys) {
      const auto path = child_path(section, key.name);
      if (key.component != nullptr) visit_components(section, *key.registry);
      add_list(key);
      if (key.section_at) {
        key.resize_sections(1);
        const SectionKeys item([&](KeyTable& table) { key.section_at(0, table); });
        visit(Table{"an item of " + path, path, std::nullopt, "", item.keys});
        key.resize_sections(0);
      }
      if (!key.section) continue;
      if (key.set_section) key.set_section(true);
      const SectionKeys nested(key.section);
      visit(Table{path, path, path, key.doc, nested.keys});
      visit_sections(nested.keys, path);
    }
  };
  visit_sections(top.keys, "");
  // `lists` grows during the loop, because components may have lists of components themselves.
  for (size_t i = 0; i < lists.size(); ++i) visit_components(std::nullopt, *lists[i]);
}

// The words to which a key can be set, some of them twice: null for "number or null", sgd and adam for "sgd | adam".
std::vector<std::string> words_of(const Key& key) {
  auto words = key.component != nullptr ? key.registry->names() : key.choices;
  for (const std::string word : {"true", "false", "auto", "null"}) {
    if ((' ' + key.type + ' ').find(' ' + word + ' ') != std::string::npos) words.push_back(word);
  }
  return words;
}

std::string escape_cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string text_of(const Table& table) {
  auto out = fmt::format("{}{}{}\n", table.title, table.doc.empty() ? "" : ": ", table.doc);
  for (const auto& key : table.keys) {
    out += fmt::format("  {:<22} {}", key.name, key.type);
    if (!key.range.empty()) out += ", " + key.range;
    if (!key.unit.empty()) out += ", " + key.unit;
    out += fmt::format("; {}{}\n", key.required ? "" : "default ", default_text(key));
    out += fmt::format("  {:<22} {}\n", "", key.doc);
  }
  if (table.keys.empty()) out += "  (no keys)\n";
  return out + '\n';
}

std::string markdown_of(const Table& table) {
  auto out = fmt::format("\n## {}\n\n", table.title);
  if (!table.doc.empty()) out += table.doc + "\n\n";
  if (table.keys.empty()) return out + "No keys.\n";
  out += "| key | type | default | range | unit | meaning |\n|---|---|---|---|---|---|\n";
  for (const auto& key : table.keys) {
    out += fmt::format("| `{}` | {} | `{}` | {} | {} | {} |\n", key.name, escape_cell(key.type), default_text(key), key.range, key.unit,
                       escape_cell(key.doc));
  }
  return out;
}

constexpr const char* kMarkdownBeginning =
    "# Configuration reference\n\n"
    "Every key of an experiment file. Generated by `trainer config reference --format markdown`; do not edit.\n"
    "Any key can be set on the command line as `section.key=value`, where the value is YAML.\n"
    "In a path, `~` at the beginning stands for the home folder, and `${NAME}` for an environment variable.\n"
    "Besides these keys, a file can name other files on which it is based: `base: other.yaml`.\n";

// The part of the table that `name` selects: all, one key, or nothing (no keys and no title). Adds the other possible names to `names`.
Table selected_part(const Table& table, const std::string& name, std::vector<std::string>& names) {
  if (name.empty() || name == table.path) return table;
  names.push_back(table.path);
  for (const auto& key : table.keys) {
    const auto path = child_path(table.path, key.name);
    if (name == path || (table.section && name == child_path(*table.section, key.name))) {
      return {table.title, table.path, table.section, table.doc, {key}};
    }
    names.push_back(path);
  }
  return {};
}

[[noreturn]] void refuse_name(const std::string& name, const std::vector<std::string>& names) {
  auto near = nearest_name(name, names);
  const auto is_end_of = [&](const std::string& whole) { return whole.ends_with('.' + name); };
  if (const auto longer = std::ranges::find_if(names, is_end_of); longer != names.end()) near = *longer;
  throw UsageError(fmt::format("\"{}\" is neither a section, a component nor a key{}; `trainer config reference` shows all", name,
                               near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near)));
}

}  // namespace

std::vector<SettableKey> settable_keys(const Registries& registries) {
  std::vector<SettableKey> all;
  for_each_table(registries, [&](const Table& table) {
    if (!table.section) return;
    for (const auto& key : table.keys) {
      if (key.section && !key.set_section) continue;
      const auto path = child_path(*table.section, key.name);
      auto found = std::ranges::find(all, path, &SettableKey::path);
      if (found == all.end()) found = all.insert(all.end(), {path, key.doc, {}, key.type == "path"});
      for (auto& word : words_of(key)) {
        if (std::ranges::find(found->values, word) == found->values.end()) found->values.push_back(std::move(word));
      }
    }
  });
  return all;
}

std::string reference(const Registries& registries, ReferenceFormat format, const std::string& name) {
  const bool is_markdown = format == ReferenceFormat::kMarkdown;
  std::string out = is_markdown && name.empty() ? kMarkdownBeginning : "";
  std::vector<std::string> names;
  for_each_table(registries, [&](const Table& table) {
    const auto selected = selected_part(table, name, names);
    if (!selected.title.empty()) out += is_markdown ? markdown_of(selected) : text_of(selected);
  });
  if (out.empty()) refuse_name(name, names);
  return out;
}

}  // namespace trainer::config
