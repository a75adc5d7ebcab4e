#pragma once
// Experiment files that take over the values of other files (`base: other.yaml`, or a list of files), and the origin of each value.

#include <filesystem>
#include <string>

#include "config/experiment.h"
#include "config/yaml.h"

namespace trainer::config {

// The name of the standard input on a command line.
inline constexpr const char* kStandardInput = "-";

// Reads an experiment file, or the standard input, and merges it with its base files, whose paths are relative to the file that names them
// (in the standard input, to the current folder). The result has no key `base`, and each position names its own file.
// Sections are merged key by key; a section with another `name`, a list and any other value replace the value of the base. Later base files
// take precedence over earlier ones. Throws UsageError, and Error with ExitCode::kStopped after a stop request.
Node read_with_bases(const std::filesystem::path& file);

// The resolved experiment file (to_yaml of config/load.h) with a comment after each value that gives its origin: "x.yaml:12", the command
// line, the default, the data set, or the loss. `experiment` must be unchanged since it was loaded.
std::string to_yaml_with_origins(Experiment& experiment, const Registries& registries);

}  // namespace trainer::config
