#pragma once
// Lines of the console: fields with two spaces between them, which are fitted to the width of a terminal.

#include <cstddef>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace trainer::reporting {

struct Field {
  static constexpr int kAlways = std::numeric_limits<int>::max();  // never left out
  std::string text;                                                // ASCII
  int importance = kAlways;
};
using Fields = std::vector<Field>;

std::string to_line(const Fields& fields);

// While the line is longer than `width`, leaves out the least important field (of equal ones the last).
Fields fitted(Fields fields, size_t width);

// Lines of at most `width` columns, which break between fields; all but the first are indented. Only a field that is longer than that
// makes a longer line. Without a line break at the end.
std::string wrapped(const Fields& fields, size_t width);

// The columns to use if `stream` is a terminal: all but the last, because many terminals wrap when it is written; 79 if the terminal does
// not know its width.
std::optional<size_t> line_width(std::FILE* stream);

}  // namespace trainer::reporting
