#pragma once
// The standard output, to which commands print their results.

#include <string_view>

namespace trainer {

// Both functions throw Error when the output cannot be written, but not when the reader of a pipe has exited. In either case, all later
// text is dropped.
void print_text(std::string_view text);
// Also reports errors that a file system reports only when a file is closed.
void flush_standard_output();

// Whether the program was started without a standard output (base/signal.h).
bool is_standard_output_closed();

}  // namespace trainer
