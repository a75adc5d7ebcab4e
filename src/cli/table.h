#pragma once
// Tables in the terminal.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace trainer::cli {

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
