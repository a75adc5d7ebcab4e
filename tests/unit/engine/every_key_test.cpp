// Tests every key table: each key misspelt, of the wrong type and out of range, and the documents that are generated from the tables.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/file.h"
#include "base/keys/key.h"
#include "config/load.h"
#include "config/reference.h"
#include "run/recipe/registries.h"
#include "tests/testing/refused_values.h"
#include "tests/testing/small_datasets.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

std::string error_of(const std::string& override_text) {
  static constexpr const char* kBase = "experiment: keys\nmodel: {name: demo_conv}\ndataset: {name: synthetic}\ntraining: {epochs: 1}\n";
  try {
    config::load_text(kBase, "x.yaml", {override_text}, recipe::all_registries());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

// Returns the override that sets the key `name` of some section to `value`.
using Write = std::function<std::string(const std::string& name, const std::string& value)>;

// `section`: the key path that errors show before the key's name.
void check_key(const Key& key, const std::string& section, const Write& write) {
  const auto path = section + key.name;
  const auto misspelt = error_of(write(key.name + "x", "1"));
  // A key of one letter is not suggested, because half of the letters of the misspelt name differ from it.
  EXPECT_NE(misspelt.find(path + "x: unknown key" + (key.name.size() > 1 ? "; did you mean \"" : "")), std::string::npos) << misspelt;
  EXPECT_FALSE(key.doc.empty()) << path;
  for (const auto& value : testing::refused_values(key)) {
    const auto error = error_of(write(key.name, value));
    EXPECT_NE(error.find("command line: " + path), std::string::npos) << path << "=" << value << " gave: " << error;
  }
}

// Tests the keys of each component of a registry; returns their number. `write` and `section` also take the component's name.
int check_components(const RegistryBase& registry, const std::function<std::string(const std::string& component)>& section,
                     const std::function<Write(const std::string& component)>& write) {
  int num_keys = 0;
  for (const auto& component : registry.components()) {
    EXPECT_FALSE(component.doc.empty()) << component.name;
    const auto options = component.make_options();
    const SectionKeys of_component(*options);
    for (const auto& key : of_component.keys) check_key(key, section(component.name), write(component.name));
    num_keys += static_cast<int>(of_component.keys.size());
  }
  return num_keys;
}

// `outer`: the path of the enclosing section.
int check_section(const Key& section_key, const std::string& outer = "") {
  const auto section_path = outer + section_key.name;
  const auto section = section_path + ".";
  if (section_key.set_section) section_key.set_section(true);
  const SectionKeys of_section(section_key.section);
  auto num_keys = static_cast<int>(of_section.keys.size());
  for (const auto& key : of_section.keys) {
    check_key(key, section, [&](const std::string& name, const std::string& value) { return section + name + "=" + value; });
    if (key.section) num_keys += check_section(key, section) - 1;
    if (key.component != nullptr) {
      num_keys += check_components(
          *key.registry, [&](const std::string&) { return section; },
          [&](const std::string& kind) {
            return [&section_path, kind](const std::string& name, const std::string& value) {
              return fmt::format("{}={{name: {}, {}: {}}}", section_path, kind, name, value);
            };
          });
    }
    if (key.section_at) {
      const auto path = section + key.name;
      key.resize_sections(1);
      const SectionKeys item([&](KeyTable& keys) { key.section_at(0, keys); });
      for (const auto& inner : item.keys) {
        check_key(inner, path + "[0].",
                  [&](const std::string& name, const std::string& value) { return fmt::format("{}=[{{{}: {}}}]", path, name, value); });
      }
      num_keys += static_cast<int>(item.keys.size());
    }
    if (key.components != nullptr) {
      const auto path = section + key.name;
      num_keys += check_components(
          *key.registry, [&](const std::string& kind) { return fmt::format("{}[0].{}.", path, kind); },
          [&](const std::string& kind) {
            return [path, kind](const std::string& name, const std::string& value) {
              return fmt::format("{}=[{{{}: {{{}: {}}}}}]", path, kind, name, value);
            };
          });
    }
  }
  return num_keys;
}

TEST(EveryKey, MisspeltMistypedAndOutOfRangeAreRefused) {
  config::Experiment experiment;
  const auto registries = recipe::all_registries();  // the keys refer to the registries
  const SectionKeys top([&](KeyTable& keys) { experiment.describe(keys, registries); });
  int num_keys = 0;
  for (const auto& key : top.keys) {
    check_key(key, "", [](const std::string& name, const std::string& value) { return name + "=" + value; });
    num_keys += key.section ? check_section(key) : 1;
  }
  EXPECT_GT(num_keys, 60);
}

TEST(EveryKey, TheReferenceInDocsMatchesTheTables) {
  const auto file = std::filesystem::path(TRAINER_SOURCE_DIR) / "docs/configuration.md";
  EXPECT_EQ(read_file(file), config::reference(recipe::all_registries(), config::ReferenceFormat::kMarkdown))
      << "the key tables changed; run: trainer config reference --format markdown > docs/configuration.md";
}

TEST(EveryKey, EveryConfigReadsBackFromItsResolvedForm) {
  const testing::SmallDatasets datasets;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(TRAINER_SOURCE_DIR) / "configs")) {
    auto experiment = config::load(entry.path(), datasets.overrides_for(entry.path()), recipe::all_registries());
    const auto text = config::to_yaml(experiment, recipe::all_registries());
    auto again = config::load_text(text, "resolved", {}, recipe::all_registries());
    EXPECT_EQ(config::to_yaml(again, recipe::all_registries()), text) << entry.path();
  }
}

}  // namespace
}  // namespace trainer::engine
