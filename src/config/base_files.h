#pragma once
// Experiment files that take over the values of other files (`base: other.yaml`, or a list of files).

#include <filesystem>

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

}  // namespace trainer::config
