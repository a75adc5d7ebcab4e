#include "config/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "config/experiment.h"
#include "config/reader.h"

namespace trainer::config {
namespace {

// One table of the reference.
struct Table {
  std::string title;  // "dataloader", "optimizer, name: sgd"
  std::string doc;
  std::vector<Key> keys;
  std::optional<std::string> path;  // of its keys: "", "dataloader.", "optimizer."; none: they are set only with the whole list
};

std::string default_text(const Key& key) {
  if (key.required) return "required";
  if (key.component != nullptr) return key.component->name;
  if (key.components != nullptr) return "[]";
  if (key.section && !key.set_section) return to_inline_yaml(write_section(key.section));
  return to_inline_yaml(key.write());
}

// Calls `visit` with each table: the top level, each section, and each component that a section or a list may name. The tables refer
// to `experiment` and to the components' options, which exist while `visit` runs.
template <class Visit>
void for_each_table(const Registries& registries, const Visit& visit) {
  Experiment experiment;
  KeyTable top;
  experiment.describe(top, registries);
  std::vector<Key> plain;
  for (const auto& key : top.keys()) {
    if (!key.section) plain.push_back(key);
  }
  visit(Table{"top level", "", plain, ""});
  std::vector<const RegistryBase*> lists;  // of the keys that are lists of components
  const auto visit_components = [&](const std::string& title, const RegistryBase& registry, const std::optional<std::string>& path) {
    for (const auto& component : registry.components()) {
      const auto options = component.make_options();
      KeyTable keys;
      options->describe(keys);
      visit(Table{fmt::format(fmt::runtime(title), component.name), component.doc, keys.keys(), path});
    }
  };
  for (const auto& key : top.keys()) {
    if (!key.section) continue;
    KeyTable section;
    key.section(section);
    visit(Table{key.name, key.doc, section.keys(), key.name + "."});
    for (const auto& inner : section.keys()) {
      if (inner.component != nullptr) visit_components(key.name + ", name: {}", *inner.registry, key.name + ".");
      if (inner.components != nullptr && std::ranges::find(lists, inner.registry) == lists.end()) lists.push_back(inner.registry);
      if (!inner.section) continue;
      if (inner.set_section) inner.set_section(true);
      const auto title = key.name + "." + inner.name;
      KeyTable keys;
      inner.section(keys);
      visit(Table{title, inner.doc, keys.keys(), title + "."});
      for (const auto& innermost : keys.keys()) {
        if (innermost.component != nullptr) visit_components(title + ", name: {}", *innermost.registry, title + ".");
      }
    }
  }
  for (const auto* registry : lists) visit_components(registry->product() + " {}", *registry, std::nullopt);
}

// The words of a type such as "number or null" and "sgd | adam" that are values by themselves.
std::vector<std::string> words_of(const std::string& type) {
  constexpr std::string_view kChoice = " | ";
  std::vector<std::string> words;
  if (type.find(kChoice) != std::string::npos) {
    for (size_t begin = 0; begin <= type.size();) {
      const auto end = std::min(type.find(kChoice, begin), type.size());
      words.push_back(type.substr(begin, end - begin));
      begin = end + kChoice.size();
    }
  }
  for (const std::string word : {"auto", "null"}) {
    if (type.ends_with(" or " + word)) words.push_back(word);
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

}  // namespace

std::vector<SettableKey> settable_keys(const Registries& registries) {
  std::vector<SettableKey> all;
  for_each_table(registries, [&](const Table& table) {
    if (!table.path) return;
    for (const auto& key : table.keys) {
      if (key.section && !key.set_section) continue;
      const auto path = *table.path + key.name;
      auto found = std::ranges::find(all, path, &SettableKey::path);
      if (found == all.end()) found = all.insert(all.end(), {path, key.doc, {}, key.type == "path"});
      for (auto& word : words_of(key.type)) {
        if (std::ranges::find(found->values, word) == found->values.end()) found->values.push_back(std::move(word));
      }
    }
  });
  return all;
}

std::string reference_text(const Registries& registries) {
  std::string out;
  for_each_table(registries, [&](const Table& table) {
    out += fmt::format("{}{}{}\n", table.title, table.doc.empty() ? "" : ": ", table.doc);
    for (const auto& key : table.keys) {
      out += fmt::format("  {:<22} {}", key.name, key.type);
      if (!key.range.empty()) out += ", " + key.range;
      if (!key.unit.empty()) out += ", " + key.unit;
      out += fmt::format("; {}{}\n", key.required ? "" : "default ", default_text(key));
      out += fmt::format("  {:<22} {}\n", "", key.doc);
    }
    if (table.keys.empty()) out += "  (no keys)\n";
    out += '\n';
  });
  return out;
}

std::string reference_markdown(const Registries& registries) {
  std::string out =
      "# Configuration reference\n\n"
      "Every key of an experiment file. Generated by `trainer config reference --format markdown`; do not edit.\n"
      "Any key can be set on the command line as `section.key=value`, where the value is YAML.\n"
      "In a path, `~` at the beginning stands for the home folder, and `${NAME}` for a variable of the environment.\n";
  for_each_table(registries, [&](const Table& table) {
    out += fmt::format("\n## {}\n\n", table.title);
    if (!table.doc.empty()) out += table.doc + "\n\n";
    if (table.keys.empty()) {
      out += "No keys.\n";
      return;
    }
    out += "| key | type | default | range | unit | meaning |\n|---|---|---|---|---|---|\n";
    for (const auto& key : table.keys) {
      out += fmt::format("| `{}` | {} | `{}` | {} | {} | {} |\n", key.name, escape_cell(key.type), default_text(key), key.range, key.unit,
                         escape_cell(key.doc));
    }
  });
  return out;
}

}  // namespace trainer::config
