#include "config/load.h"

#include "base/file.h"
#include "config/base_files.h"
#include "config/overrides.h"
#include "config/problems.h"
#include "config/reader.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

enum class Plugins { kLoad, kIgnore };

// Returns whether all plug-ins were loaded.
bool load_plugins(const Node& root, const Registries& registries, Problems& problems) {
  const auto* member = root.find("plugins");
  if (member == nullptr || !registries.load_plugin) return true;
  Experiment experiment;
  Node only = Node::map();
  only.set("plugins", member->value);
  read_section(
      only, [&](KeyTable& keys) { experiment.describe_plugins(keys); }, "", problems);
  bool are_loaded = problems.is_readable("plugins");
  for (size_t i = 0; i < experiment.plugins.size(); ++i) {
    try {
      registries.load_plugin(experiment.plugins[i]);
    } catch (const UsageError& error) {
      problems.add(member->value.items[i].position, "plugins", error.what());
      are_loaded = false;
    }
  }
  return are_loaded;
}

// `root`: the tree of the file; `source`: the file's name in messages.
Experiment load_with(Node root, const std::string& source, const std::vector<std::string>& overrides, const Registries& registries,
                     Plugins plugins, UnknownKeys unknown_keys = UnknownKeys::kRefuse) {
  if (root.kind == Node::Kind::kNull)
    throw UsageError(source +
                     ": the file is empty; `trainer init` writes one for your images, and `trainer config reference` shows all keys");
  Problems problems(unknown_keys);
  if (root.kind == Node::Kind::kMap) {
    for (const auto& override_text : overrides) apply_override(root, override_text, problems);
    if (const auto* base = root.find("base")) {
      problems.add(base->value.position, "base", "a base can only be set in an experiment file; write it there");
      std::erase_if(root.members, [](const Node::Member& member) { return member.name == "base"; });
    }
  }
  // Stops here, because the components of a missing plug-in would also be reported, as unknown names.
  if (plugins == Plugins::kLoad && !load_plugins(root, registries, problems)) problems.throw_if_any();
  Experiment experiment;
  read_section(
      root, [&](KeyTable& keys) { experiment.describe(keys, registries); }, "", problems);
  experiment.tree = std::move(root);
  Findings findings(experiment.tree, problems);
  experiment.check(findings);
  if (registries.complete) experiment = registries.complete(experiment, findings);
  if (registries.check) registries.check(experiment, findings);
  problems.throw_if_any();
  experiment.warnings = problems.lines(Problems::Kind::kWarning);
  experiment.ignored_keys = problems.lines(Problems::Kind::kIgnored);
  return experiment;
}

}  // namespace

Experiment load(const std::filesystem::path& file, const std::vector<std::string>& overrides, const Registries& registries) {
  return load_with(read_with_bases(file), file == kStandardInput ? kStandardInputName : file.string(), overrides, registries,
                   Plugins::kLoad);
}

Experiment load_text(const std::string& text, const std::string& source, const std::vector<std::string>& overrides,
                     const Registries& registries, UnknownKeys unknown_keys) {
  return load_with(parse_yaml(text, source), source, overrides, registries, Plugins::kIgnore, unknown_keys);
}

Experiment load_tree(Node tree, const Registries& registries) {
  return load_with(std::move(tree), "the experiment", {}, registries, Plugins::kIgnore);
}

Node resolved_tree(const Experiment& experiment, const Registries& registries) {
  auto copy = experiment;
  return write_section([&](KeyTable& keys) { copy.describe(keys, registries); });
}

std::string to_yaml(const Experiment& experiment, const Registries& registries) { return to_yaml(resolved_tree(experiment, registries)); }

}  // namespace trainer::config
