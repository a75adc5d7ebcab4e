#pragma once

#include <string>
#include <vector>

#include "config/load.h"

namespace trainer::commands {

// `word` as a shell reads it: in quotes if it has other characters than letters, digits and those of usual paths.
std::string quoted(const std::string& word);

// The command line that trains this experiment on so many ranks of a host, with further overrides, as a shell reads it.
std::string training_command(const config::ExperimentSource& source, int world_size, const std::vector<std::string>& more = {});

}  // namespace trainer::commands
