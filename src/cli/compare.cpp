#include "history/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/printable.h"
#include "cli/arguments.h"
#include "cli/runs.h"
#include "cli/table.h"
#include "reporting/line.h"

namespace trainer::cli {
namespace {

using history::Json;
using history::Row;
using history::RunRecord;

// Wider tables are hard to read, and the values of a row then stand below each other.
constexpr size_t kWidthWithoutTerminal = 120;

std::string shown(const std::optional<std::string>& value) { return value ? printable(*value) : "-"; }

std::string to_list(const std::vector<Row>& rows, const std::vector<std::string>& names) {
  size_t width = 0;
  for (const auto& name : names) width = std::max(width, text_width(name));
  std::string text;
  for (const auto& row : rows) {
    text += printable(row.name) + '\n';
    for (size_t i = 0; i < names.size(); ++i) {
      text += fmt::format("  {}{}  {}\n", names[i], std::string(width - text_width(names[i]), ' '), shown(row.values[i]));
    }
  }
  return text;
}

// A column for each run, or a line for each run if those would be too wide.
std::string to_text(const std::vector<Row>& rows, const char* title, const std::vector<std::string>& names) {
  std::vector<Column> columns = {{title, {}, 0}};
  for (const auto& name : names) columns.push_back({name, {}, 0});
  for (const auto& row : rows) {
    columns.front().cells.push_back(printable(row.name));
    for (size_t i = 0; i < names.size(); ++i) columns[i + 1].cells.push_back(shown(row.values[i]));
  }
  auto table = to_table(std::move(columns), std::nullopt);
  size_t widest = 0;
  for (size_t begin = 0; begin < table.size();) {
    const auto end = table.find('\n', begin);
    widest = std::max(widest, text_width(table.substr(begin, end - begin)));
    begin = end + 1;
  }
  return widest <= reporting::line_width(stdout).value_or(kWidthWithoutTerminal) ? table : std::string(title) + '\n' + to_list(rows, names);
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
    const Json json = {{"runs", folders}, {"config", to_json(config)}, {"environment", to_json(environment)}, {"result", to_json(results)}};
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
    return ExitCode::kDone;
  }
  std::vector<std::string> names;
  for (const auto& folder : folders) names.push_back(printable(folder));
  std::string text = config.empty() ? "CONFIGURATION: no differences\n" : to_text(config, "CONFIGURATION", names);
  text += environment.empty() ? "\nENVIRONMENT: no differences\n" : '\n' + to_text(environment, "ENVIRONMENT", names);
  text += '\n' + to_text(results, "RESULT", names);
  fmt::print("{}", text);
  return ExitCode::kDone;
}

}  // namespace trainer::cli
