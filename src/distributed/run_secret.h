#pragma once

#include <filesystem>
#include <string>

#include "base/log.h"
#include "world/rank_env.h"

namespace trainer::distributed {

// The secret of distributed.secret_file: the file's text without white space at its ends. Logs a warning if other users may read the file.
// Throws UsageError if it is no regular file, cannot be read, is longer than 4 KiB, or has fewer than 16 characters.
world::RunSecret read_secret_file(const std::filesystem::path& file, Logger& logger);

// For messages: "distributed.secret_file", "torchrun's run id (TORCHELASTIC_RUN_ID)".
std::string describe(world::RunSecret::Source source);

}  // namespace trainer::distributed
