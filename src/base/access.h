#pragma once
// Why a file or folder cannot be written, in words that name the cure.

#include <filesystem>
#include <string>

namespace trainer {

// `error`: the system's reason for which `path`, a file or a folder, could not be made or written. Of a refusal it says whose folder (or
// file) that is, which user this process runs as, and what to do; anything else in the system's words.
std::string explain_refusal(const std::filesystem::path& path, const std::error_code& error);

}  // namespace trainer
