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
// (in the standard input, to the current folder). The result has no key `base`, and the position of each value names the value's own file.
// Sections are merged key by key, but a section whose `name` differs from that of the base replaces the base's section; a list or any other
// value replaces the base's value. Later base files take precedence over earlier ones. Throws UsageError, and Error with
// ExitCode::kStopped after a stop request.
Node read_with_bases(const std::filesystem::path& file);

// The resolved experiment file (to_yaml of config/load.h) with a comment after each value that gives its origin: "x.yaml:12", the command
// line, the default, the data set, or the loss. `experiment` must be unchanged since it was loaded.
std::string to_yaml_with_origins(const Experiment& experiment, const Registries& registries);

}  // namespace trainer::config
