#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/standard_streams.h"
#include "reporting/values.h"
#include "trainer/error.h"

namespace trainer::cli {

// Prints a result as JSON and a newline. Not through printable() (base/text.h), whose \x7f JSON does not know. Throws as print_text().
inline void print_json(const reporting::Json& value, int indent = -1) { print_text(reporting::to_text(value, indent) + '\n'); }

// Runs a command. Prints its error to stderr, if there is one, and returns the exit code of the process. Does not throw.
int run_and_report(const std::function<ExitCode()>& command);

// The same for the whole program: then writes out what it printed, also after a failure, and reports if that fails.
int run_program(const std::function<ExitCode()>& command);

// Tables in the terminal.

// Spaces between two columns.
constexpr size_t kColumnGap = 2;

struct Column {
  std::string title;
  std::vector<std::string> cells;  // UTF-8 without control characters
  // In a terminal that is too narrow, columns with a lower importance are left out first; 0: never left out.
  int importance = 0;
};

// Lines of cells, each column as wide as its widest cell. Columns are left out until the lines have at most `width` columns; without a
// width, none is.
std::string to_table(std::vector<Column> columns, std::optional<size_t> width);

// The number of columns that a terminal needs for the text, if none of its characters is wider than one.
size_t text_width(const std::string& text);

}  // namespace trainer::cli
