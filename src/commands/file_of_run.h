#pragma once

#include <filesystem>
#include <string_view>

namespace trainer::commands {

// Throws UsageError if `output`, the value of `option`, is a file that a run keeps about itself, which would be lost: its metrics, its
// checkpoints and all others that training writes to a run directory.
void refuse_file_of_run(const std::filesystem::path& output, std::string_view option = "--output");

}  // namespace trainer::commands
