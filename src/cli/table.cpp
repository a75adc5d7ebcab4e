#include "cli/table.h"

#include <algorithm>

namespace trainer::cli {
namespace {

size_t width_of(const Column& column) {
  size_t width = text_width(column.title);
  for (const auto& cell : column.cells) width = std::max(width, text_width(cell));
  return width;
}

size_t width_of(const std::vector<Column>& columns) {
  size_t width = columns.empty() ? 0 : kColumnGap * (columns.size() - 1);
  for (const auto& column : columns) width += width_of(column);
  return width;
}

void append_line(const std::vector<Column>& columns, const auto& cell_of, std::string& text) {
  std::string line;
  size_t target = 0;
  for (const auto& column : columns) {
    line.append(target - std::min(target, text_width(line)), ' ');
    line += cell_of(column);
    target += width_of(column) + kColumnGap;
  }
  text += line + '\n';
}

}  // namespace

size_t text_width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string to_table(std::vector<Column> columns, std::optional<size_t> width) {
  while (width && width_of(columns) > *width) {
    const auto rank = [](const Column& column) { return column.importance == 0 ? 1000 : column.importance; };
    const auto least = std::ranges::min_element(columns, {}, rank);
    if (least->importance == 0) break;
    columns.erase(least);
  }
  std::string text;
  append_line(
      columns, [](const Column& column) { return column.title; }, text);
  for (size_t row = 0; row < columns.front().cells.size(); ++row) {
    append_line(
        columns, [&](const Column& column) { return column.cells[row]; }, text);
  }
  return text;
}

}  // namespace trainer::cli
