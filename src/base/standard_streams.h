#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainer {

// The name of the standard input in messages.
inline constexpr const char* kStandardInputName = "<standard input>";

// Reads the standard input to its end. Throws Error if it cannot be read or has more than `max_bytes`, and, with ExitCode::kStopped, for a
// stop request during the wait.
std::string read_standard_input(size_t max_bytes);

// The standard output, to which commands print their results.

// Both functions throw Error when the output cannot be written, but not when the reader of a pipe has exited. In either case, all later
// text is dropped.
void print_text(std::string_view text);
// Also reports errors that a file system reports only when a file is closed.
void flush_standard_output();

// Whether the program was started without a standard output (base/signal.h).
bool is_standard_output_closed();

}  // namespace trainer
