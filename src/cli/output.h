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

// Prints a result as JSON and a newline. Throws like print_text().
inline void print_json(const reporting::Json& value, int indent = -1) { print_text(reporting::to_text(value, indent) + '\n'); }

// Runs a command. Prints its error to stderr, if there is one, and returns the exit code of the process. Does not throw.
int run_and_report(const std::function<ExitCode()>& command);

// Like run_and_report(), for the whole program; afterwards flushes the standard output.
int run_program(const std::function<ExitCode()>& command);

// Tables in the terminal.

// Spaces between two columns.
constexpr size_t kColumnGap = 2;

struct Column {
  std::string title;
  int importance = reporting::Field::kAlways;  // in a terminal that is too narrow
  bool is_number = false;                      // aligned to the right
};
using Row = std::vector<std::string>;  // a cell for each column: UTF-8 without control characters

// Lines of cells, each column as wide as its title or widest cell; the first has the titles, if there are any. Columns are omitted until
// the lines have at most `width` characters, as far as `importance` allows; without a width, all columns stay.
std::string to_table(const std::vector<Column>& columns, std::vector<Row> rows, std::optional<size_t> width = {});

// The number of terminal columns that the text needs if each character takes one column.
size_t text_width(const std::string& text);

}  // namespace trainer::cli
