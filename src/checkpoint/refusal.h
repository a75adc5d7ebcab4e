#pragma once
// How a file is refused: one sentence that says where, what and what to do.

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"

namespace trainer::checkpoint {

// Throws CheckpointError: "<source>: <what>; <cure>".
[[noreturn]] void refuse(std::string_view source, std::string_view what, std::string_view cure);
// The same for what no program writes.
[[noreturn]] void refuse_damaged(std::string_view source, std::string_view what);
[[noreturn]] void refuse_empty(std::string_view source);

// Text of a file as a message may show it: in quotes, on one line, and not long.
std::string in_quotes(std::string_view text);

// Throws CheckpointError for a file that is missing or cannot be read.
MappedFile map_file(const std::filesystem::path& path);

}  // namespace trainer::checkpoint
