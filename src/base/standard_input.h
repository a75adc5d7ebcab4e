#pragma once

#include <cstddef>
#include <string>

namespace trainer {

// What messages call it.
inline constexpr const char* kStandardInputName = "<standard input>";

// Reads the standard input to its end, at most `max_bytes`. While there is nothing to read, a stop request ends the call by an Error with
// ExitCode::kStopped.
std::string read_standard_input(size_t max_bytes);

}  // namespace trainer
