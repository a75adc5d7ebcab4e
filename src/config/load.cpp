#include "config/load.h"

#include "base/error.h"
#include "base/file.h"
#include "config/check.h"
#include "config/override.h"
#include "config/problems.h"
#include "config/reader.h"

namespace trainer::config {

Experiment load(const std::filesystem::path& file, const std::vector<std::string>& overrides, const Registries& registries) {
  std::string text;
  try {
    text = read_file(file);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return load_text(text, file.string(), overrides, registries);
}

Experiment load_text(const std::string& text, const std::string& source, const std::vector<std::string>& overrides,
                     const Registries& registries) {
  Node root = parse_yaml(text, source);
  if (root.kind == Node::Kind::kNull) throw UsageError(source + ": the file is empty; `trainer config reference` shows what belongs in it");
  Problems problems;
  for (const auto& override_text : overrides) apply_override(root, override_text, problems);
  Experiment experiment;
  read_section(
      root, [&](KeyTable& keys) { experiment.describe(keys, registries); }, "", problems);
  if (root.kind == Node::Kind::kMap) check(experiment, root, problems);
  problems.throw_if_any();
  return experiment;
}

std::string to_yaml(Experiment& experiment, const Registries& registries) {
  return to_yaml(write_section([&](KeyTable& keys) { experiment.describe(keys, registries); }));
}

}  // namespace trainer::config
