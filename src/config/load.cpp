#include "config/load.h"

#include "base/error.h"
#include "base/file.h"
#include "config/findings.h"
#include "config/overrides.h"
#include "config/problems.h"
#include "config/reader.h"

namespace trainer::config {
namespace {

// More cannot be an experiment file, but a device or a data file.
constexpr size_t kMaxBytes = 1 << 20;

}  // namespace

Experiment load(const std::filesystem::path& file, const std::vector<std::string>& overrides, const Registries& registries) {
  std::string text;
  try {
    text = read_file_or_pipe(file, kMaxBytes);
  } catch (const Error& error) {
    if (error.exit_code() == ExitCode::kStopped) throw;
    throw UsageError(error.what());
  }
  return load_text(text, file.string(), overrides, registries);
}

Experiment load_text(const std::string& text, const std::string& source, const std::vector<std::string>& overrides,
                     const Registries& registries) {
  Node root = parse_yaml(text, source);
  if (root.kind == Node::Kind::kNull) throw UsageError(source + ": the file is empty; `trainer config reference` shows what belongs in it");
  Problems problems;
  if (root.kind == Node::Kind::kMap) {
    for (const auto& override_text : overrides) apply_override(root, override_text, problems);
  }
  Experiment experiment;
  read_section(
      root, [&](KeyTable& keys) { experiment.describe(keys, registries); }, "", problems);
  Findings findings(root, problems);
  experiment.check(findings);
  if (registries.check) registries.check(experiment, findings);
  problems.throw_if_any();
  experiment.warnings = problems.warnings();
  experiment.tree = std::move(root);
  return experiment;
}

std::string to_yaml(Experiment& experiment, const Registries& registries) {
  return to_yaml(write_section([&](KeyTable& keys) { experiment.describe(keys, registries); }));
}

}  // namespace trainer::config
