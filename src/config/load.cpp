#include "config/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/path.h"
#include "config/overrides.h"
#include "config/problems.h"
#include "config/reader.h"
#include "config/yaml.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

namespace fs = std::filesystem;

// A larger file is not an experiment file but a device or a data file.
constexpr size_t kMaxFileBytes = 1 << 20;
// Each base file can name several others, and files can be based on each other.
constexpr int kMostFiles = 100;

bool names_another(const Node& base, const Node& derived) {
  const auto* theirs = base.find("name");
  const auto* ours = derived.find("name");
  return theirs != nullptr && ours != nullptr && to_inline_yaml(theirs->value) != to_inline_yaml(ours->value);
}

void merge(Node& base, Node derived) {
  const bool are_sections = base.kind == Node::Kind::kMap && derived.kind == Node::Kind::kMap;
  if (!are_sections || names_another(base, derived)) {
    base = std::move(derived);
    return;
  }
  base.position = derived.position;
  for (auto& member : derived.members) {
    if (auto* present = base.find(member.name)) {
      present->position = member.position;
      merge(present->value, std::move(member.value));
    } else {
      base.members.push_back(std::move(member));
    }
  }
}

class FileReader {
 public:
  Node read(const fs::path& file) {
    if (file == kStandardInput) return with_bases(parse_yaml(read_standard_input(kMaxFileBytes), kStandardInputName), "");
    if (++num_files_ > kMostFiles) {
      throw Error(
          fmt::format("more than {} base files, or {} is based on itself; remove some of the `base` keys", kMostFiles, file.string()));
    }
    return with_bases(parse_yaml(read_file_or_pipe(file, kMaxFileBytes), file.string()), file.parent_path());
  }

 private:
  // `folder`: the folder of the file that contains `node`; relative paths of its base files begin there.
  Node with_bases(Node node, const fs::path& folder) {
    const auto key = std::ranges::find(node.members, "base", &Node::Member::name);
    if (key == node.members.end()) return node;
    const auto value = std::move(key->value);
    node.members.erase(key);
    const bool is_list = value.kind == Node::Kind::kList && !value.items.empty();
    Node merged = Node::map();
    for (const auto& path : is_list ? value.items : std::vector<Node>{value}) merge(merged, read_base(path, folder));
    merge(merged, std::move(node));
    return merged;
  }

  Node read_base(const Node& path, const fs::path& folder) {
    const auto refuse = [&](const std::string& what) { throw UsageError(fmt::format("{}: base: {}", to_string(path.position), what)); };
    if (path.kind != Node::Kind::kScalar || path.text.empty()) {
      refuse(fmt::format("expected the path of an experiment file, or a list of paths, got {}", to_inline_yaml(path)));
    }
    Node base;
    try {
      const auto file = (folder / expand_path(path.text)).lexically_normal();
      if (const auto irregular = describe_irregular(file); !irregular.empty())
        throw Error(fmt::format("cannot read {}: {}", file.string(), irregular));
      base = read(file);
      if (base.kind == Node::Kind::kNull) throw Error(file.string() + " is empty; remove it from `base`, or write keys into it");
      if (base.kind != Node::Kind::kMap)
        throw Error(file.string() + " is not an experiment file, because it has no sections of keys and values; correct the path");
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      if (error.exit_code() == ExitCode::kStopped) throw;
      refuse(error.what());
    }
    return base;
  }

  int num_files_ = 0;
};

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

Node read_with_bases(const fs::path& file) {
  try {
    return FileReader().read(file);
  } catch (const Error& error) {
    if (error.exit_code() == ExitCode::kStopped || dynamic_cast<const UsageError*>(&error) != nullptr) throw;
    throw UsageError(error.what());
  }
}

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
