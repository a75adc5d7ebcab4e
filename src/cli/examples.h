#pragma once

#include <string_view>

namespace trainer::cli {

// Command lines, one a line, for the help and the man page of a command ("eval"); empty if there is no such command.
std::string_view examples_of(std::string_view command);

}  // namespace trainer::cli
