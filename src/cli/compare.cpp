#include "report/history/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "cli/runs.h"
#include "reporting/values.h"

namespace trainer::cli {
namespace {

using history::Json;
using history::Row;
using history::RunRecord;

// Of a table and of folded text where no terminal has a width of its own.
constexpr size_t kWidthWithoutTerminal = 80;

std::string shown(const std::optional<std::string>& value) { return value ? printable_line(*value) : "-"; }

// The text after `prefix`, in lines of at most `width` columns; the further lines are indented like the first. A line ends after a space
// where it has one.
std::string folded(const std::string& prefix, std::string text, size_t width) {
  const auto indent = text_width(prefix);
  const auto room = std::max<size_t>(width - std::min(width, indent), 20);
  std::string lines = prefix;
  while (text_width(text) > room) {
    size_t end = 0;  // in bytes
    size_t space = 0;
    for (size_t column = 0; column < room; ++column) {
      if (text[end] == ' ') space = end;
      do {
        ++end;
      } while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);  // the further bytes of a UTF-8 character
    }
    if (space > 0) end = space + 1;
    lines += text.substr(0, end) + '\n' + std::string(indent, ' ');
    text.erase(0, end);
  }
  return lines + text + '\n';
}

// A line for each run.
std::string to_list(const Row& row, const std::vector<std::string>& names, size_t width) {
  size_t longest = 0;
  for (const auto& name : names) longest = std::max(longest, text_width(name));
  std::string text = printable_line(row.name) + '\n';
  for (size_t i = 0; i < names.size(); ++i) {
    text += folded(fmt::format("  {}{}  ", names[i], std::string(longest - text_width(names[i]), ' ')), shown(row.values[i]), width);
  }
  return text;
}

// A table with a column for each run, and after it the rows that would make it too wide, with a line for each run.
std::string to_text(const std::vector<Row>& rows, const char* title, const std::vector<std::string>& names) {
  const auto width = reporting::line_width(stdout).value_or(kWidthWithoutTerminal);
  std::vector<Column> columns = {{title, {}, 0}};
  for (const auto& name : names) columns.push_back({name, {}, 0});
  std::vector<size_t> widths;
  for (const auto& column : columns) widths.push_back(text_width(column.title) + kColumnGap);
  std::string list;
  for (const auto& row : rows) {
    std::vector<std::string> cells = {printable_line(row.name)};
    for (const auto& value : row.values) cells.push_back(shown(value));
    auto wider = widths;
    for (size_t i = 0; i < cells.size(); ++i) wider[i] = std::max(wider[i], text_width(cells[i]) + kColumnGap);
    if (std::accumulate(wider.begin(), wider.end(), size_t{0}) - kColumnGap > width) {
      list += to_list(row, names, width);
      continue;
    }
    widths = std::move(wider);
    for (size_t i = 0; i < cells.size(); ++i) columns[i].cells.push_back(std::move(cells[i]));
  }
  return (columns.front().cells.empty() ? std::string(title) + '\n' : to_table(std::move(columns), std::nullopt)) + list;
}

std::vector<Row> differing(std::vector<Row> rows) {
  std::erase_if(rows, [](const Row& row) { return !row.differs(); });
  return rows;
}

Json to_json(const std::vector<Row>& rows) {
  Json object = Json::object();
  for (const auto& row : rows) {
    auto& values = object[row.name] = Json::array();
    for (const auto& value : row.values) values.push_back(value ? Json(*value) : Json());
  }
  return object;
}

}  // namespace

ExitCode compare(const std::vector<std::string>& args) {
  CLI::App app("Shows where the configurations and environments of runs differ, and their results.", "trainer compare");
  std::vector<std::string> folders;
  bool as_json = false;
  app.add_option("runs", folders, "folders of runs, such as runs/a runs/b")->required()->expected(2, 100)->type_name("RUN");
  app.add_flag("--json", as_json, "print a JSON object with the values of each run, in the order of the runs");
  parse(app, args);
  std::vector<RunRecord> runs;
  for (const auto& folder : folders) runs.push_back(history::read_run(folder, history::Detail::kAll));
  const auto config = differing(history::config_rows(runs));
  const auto environment = differing(history::environment_rows(runs));
  const auto results = history::result_rows(runs);
  if (as_json) {
    print_json({{"runs", folders}, {"config", to_json(config)}, {"environment", to_json(environment)}, {"result", to_json(results)}}, 2);
    return ExitCode::kDone;
  }
  auto names = history::names_of(runs);
  for (auto& name : names) name = printable_line(name);
  std::string text = config.empty() ? "CONFIGURATION: no differences\n" : to_text(config, "CONFIGURATION", names);
  text += environment.empty() ? "\nENVIRONMENT: no differences\n" : '\n' + to_text(environment, "ENVIRONMENT", names);
  text += '\n' + to_text(results, "RESULT", names);
  print_text(text);
  return ExitCode::kDone;
}

}  // namespace trainer::cli
