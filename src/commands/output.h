#pragma once
// The results that commands print to stdout.

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/output_file.h"
#include "base/printable.h"
#include "base/standard_output.h"

namespace trainer::commands {

// As fmt::print, with what a terminal would execute shown instead (base/printable.h), because results quote files and their names. Throws
// as print_text().
template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  print_text(printable(fmt::format(format, std::forward<Args>(args)...)));
}

// Says that a command has written its result to `output`. Not where the result itself went to the standard output; and a standard output
// that was closed is no error here, because the result is in `output`.
template <class... Args>
void print_written(const std::filesystem::path& output, fmt::format_string<Args...> format, Args&&... args) {
  if (is_standard_output_closed() || is_standard_output(output)) return;
  print("{}: {}\n", output.string(), fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trainer::commands
