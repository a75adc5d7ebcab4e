#pragma once
// What torchrun shows of a process that has failed.

#include <filesystem>
#include <string>

#include "base/error.h"

namespace trainer::supervision {

// Writes `text` into `file`, complete or not at all, as torchrun reads it; nothing where `file` is empty. A file that cannot be written
// is no error: what it would say has been said elsewhere. torchrun takes the earliest failure for the root cause, so what another rank
// has caused, which is kPeer and what has no text because another rank says it, is dated later. Not collective.
void write_error_file(const std::filesystem::path& file, const std::string& text, ExitCode exit_code);

}  // namespace trainer::supervision
