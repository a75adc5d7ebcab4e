#pragma once
// The file from which torchrun reads the error of a failed process.

#include <filesystem>
#include <string>

#include "base/error.h"

namespace trainer::supervision {

// Atomically writes `text` to `file` in torchrun's format; does nothing if `file` is empty. A write error is ignored, because the text has
// been logged already. torchrun reports the earliest failure as the root cause, so a failure that another rank caused (kPeer, or an empty
// text because another rank reports it) gets a later time stamp. Not collective.
void write_error_file(const std::filesystem::path& file, const std::string& text, ExitCode exit_code);

}  // namespace trainer::supervision
