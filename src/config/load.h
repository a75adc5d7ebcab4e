#pragma once
// Loads and checks an Experiment from a file and the overrides of the command line.

#include <filesystem>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "config/problems.h"

namespace trainer::config {

// The name of the standard input on a command line.
inline constexpr const char* kStandardInput = "-";

// An experiment as given on the command line.
struct ExperimentSource {
  std::filesystem::path file;          // or kStandardInput
  std::vector<std::string> overrides;  // key=value
};

// Reads an experiment file, or the standard input, and merges it with its base files (`base: other.yaml`, or a list of files), whose paths
// are relative to the file that names them (in the standard input, to the current folder). The result has no key `base`, and the position
// of each value names the value's own file. Sections are merged key by key, but a section whose `name` differs from that of the base
// replaces the base's section; a list or any other value replaces the base's value. Later base files take precedence over earlier ones.
// Throws UsageError, and Error with ExitCode::kStopped after a stop request.
Node read_with_bases(const std::filesystem::path& file);

// Reads `file` with its base files, applies `overrides` ("optimizer.lr=0.05", "dataset.train_transforms=[]",
// "optimizer={name: adamw}") in their order, fills an Experiment and checks it across sections. Throws one UsageError that lists every
// problem found, each as "file:line:column: key.path: …". Uses no device, and reads no more of the data set than Registries::complete does.
Experiment load(const std::filesystem::path& file, const std::vector<std::string>& overrides, const Registries& registries);

// The same for a text, which cannot have a base and whose plug-ins are not loaded; positions in messages begin with `source`.
Experiment load_text(const std::string& text, const std::string& source, const std::vector<std::string>& overrides,
                     const Registries& registries, UnknownKeys unknown_keys = UnknownKeys::kRefuse);

// The same for a tree, such as that of another experiment.
Experiment load_tree(Node tree, const Registries& registries);

// Every key with its value and facts, in the order of the reference.
Node resolved_tree(const Experiment& experiment, const Registries& registries);
// The resolved experiment file: this tree as text, which load_text reads back to the same experiment.
std::string to_yaml(const Experiment& experiment, const Registries& registries);

}  // namespace trainer::config
