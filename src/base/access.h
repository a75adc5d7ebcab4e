#pragma once
// Explains why a file or folder cannot be written, and what to do about it.

#include <filesystem>
#include <string>

namespace trainer {

// Describes `error`, with which the creation or writing of `path` (a file or a folder) failed. For a permission error or a read-only file
// system, the text names the file or folder that refused access (with its owner and this process's user) and remedies; any other error is
// described by the system's message. `remedy`: the one to name first; empty: none.
std::string explain_refusal(const std::filesystem::path& path, const std::error_code& error, const std::string& remedy = "");

}  // namespace trainer
