#pragma once
// Why a file is not read.

#include <cstdint>
#include <span>
#include <string_view>

namespace trainer::images {

// Throws std::runtime_error: it is `form` ("a GIF image"), which this program does not read.
[[noreturn]] void refuse_form(std::string_view form);

// Throws std::runtime_error with what the file is, as far as its first bytes say so. For files of none of the formats that are read.
[[noreturn]] void refuse_format(std::span<const uint8_t> file);

}  // namespace trainer::images
