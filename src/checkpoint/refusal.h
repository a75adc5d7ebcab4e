#pragma once
// Refuses a file with a message of one sentence: the file, what is wrong with it, and what to do.

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"

namespace trainer::checkpoint {

// Throws CheckpointError: "<source>: <what>; <cure>".
[[noreturn]] void refuse(std::string_view source, std::string_view what, std::string_view cure);
// The same for content that no correct writer produces.
[[noreturn]] void refuse_damaged(std::string_view source, std::string_view what);
[[noreturn]] void refuse_empty(std::string_view source);

// Text from a file, made fit for a message: in quotes, on one line and shortened.
std::string in_quotes(std::string_view text);

// Throws CheckpointError if the file is missing or cannot be read.
MappedFile map_file(const std::filesystem::path& path);

}  // namespace trainer::checkpoint
