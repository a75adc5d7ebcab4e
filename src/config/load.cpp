#include "config/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "config/problems.h"
#include "config/reader.h"

namespace trainer::config {
namespace {

// The position of "section.key" in the file; that of the section, or of the file's beginning, if the key is not given.
Position position_of(const Node& root, const std::string& path) {
  const Node* node = &root;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const auto* member = node->find(path.substr(begin, end - begin));
    if (member == nullptr) break;
    node = &member->value;
    begin = end + 1;
  }
  return node->position;
}

// More cannot be an experiment file, but a device or a data file.
constexpr size_t kMaxBytes = 1 << 20;
const Position kCommandLine{"command line", 0, 0};

void place_on_command_line(Node& node) {
  node.position = kCommandLine;
  for (auto& item : node.items) place_on_command_line(item);
  for (auto& member : node.members) {
    member.position = kCommandLine;
    place_on_command_line(member.value);
  }
}

bool names_another_kind(const Node& section, const Node& value) {
  const auto* before = section.find("name");
  const auto* after = value.find("name");
  return after != nullptr && (before == nullptr || before->value.text != after->value.text);
}

void merge(Node& target, Node value) {
  if (target.kind != Node::Kind::kMap || value.kind != Node::Kind::kMap || names_another_kind(target, value)) {
    target = std::move(value);
    return;
  }
  for (auto& member : value.members) {
    if (auto* existing = target.find(member.name)) {
      merge(existing->value, std::move(member.value));
    } else {
      target.members.push_back(std::move(member));
    }
  }
}

// Applies "key.path=value" to a tree; the value is YAML. A map given for a section is merged into it, unless it names another component
// (`optimizer={name: adamw, lr: 0.001}`): then it replaces the section. An invalid override is added to `problems`.
void apply_override(Node& root, const std::string& text, Problems& problems) {
  const size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  if (equals == std::string::npos || path.empty() || path.front() == '.' || path.back() == '.' || path.find("..") != std::string::npos) {
    problems.add(kCommandLine, "", fmt::format("\"{}\" is not an override; write key.path=value, such as optimizer.lr=0.05", text));
    return;
  }
  Node value;
  try {
    value = parse_yaml(text.substr(equals + 1), kCommandLine.source);
  } catch (const UsageError& error) {
    problems.add(kCommandLine, path, fmt::format("the value is not YAML ({})", error.what()));
    return;
  }
  place_on_command_line(value);

  Node* node = &root;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const auto name = path.substr(begin, end - begin);
    if (node->kind == Node::Kind::kNull) node->kind = Node::Kind::kMap;
    if (node->kind != Node::Kind::kMap) {
      problems.add(kCommandLine, path,
                   fmt::format("{} is not a section; give it whole, such as {}={}", path.substr(0, begin - 1), path.substr(0, begin - 1),
                               node->kind == Node::Kind::kList ? "[...]" : "..."));
      return;
    }
    auto* member = node->find(name);
    if (member == nullptr) {
      Node missing;
      missing.position = kCommandLine;
      node->set(name, std::move(missing));
      member = node->find(name);
    }
    node = &member->value;
    begin = end + 1;
  }
  merge(*node, std::move(value));
}

// Reports contradictions between keys that are each valid. `root` gives the positions of the keys.
void check(const Experiment& experiment, const Node& root, Problems& problems) {
  const auto report = [&](const std::string& path, const std::string& what) { problems.add(position_of(root, path), path, what); };

  const auto& name = experiment.experiment;
  const bool names_a_folder = name.find('/') == std::string::npos && name != "." && name != ".." && !name.empty();
  if (root.find("experiment") != nullptr && !names_a_folder) {
    report("experiment", fmt::format("\"{}\" cannot name a folder; use letters, digits, - and _", name));
  }

  const auto& loader = experiment.dataloader;
  const int64_t micro_steps = experiment.training.accumulation_steps;
  if (loader.batch_size && loader.global_batch_size) {
    report("dataloader.global_batch_size", "given together with dataloader.batch_size; keep one of them");
  } else if (loader.global_batch_size && *loader.global_batch_size % micro_steps != 0) {
    report("dataloader.global_batch_size",
           fmt::format("{} is not a multiple of training.accumulation_steps = {}", *loader.global_batch_size, micro_steps));
  }

  if (experiment.lr_scheduler.warmup_steps > 0 && experiment.lr_scheduler.warmup_epochs > 0) {
    report("lr_scheduler.warmup_epochs", "given together with lr_scheduler.warmup_steps; keep one of them");
  }

  if (experiment.runtime.dtype == DtypeChoice::kFloat64 && experiment.amp.enabled.value.value_or(false)) {
    report("amp.enabled", "autocast lowers the precision that runtime.dtype: float64 asks for; choose one of them");
  }
}

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
