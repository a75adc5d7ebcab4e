#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <numeric>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/metric_order.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/light_commands.h"
#include "cli/output.h"
#include "report/history/run_comparison.h"
#include "report/history/run_record.h"
#include "reporting/values.h"
#include "trainer/error.h"

namespace trainer::cli {
namespace {

using history::Json;
using history::RunRecord;

std::string format_time(double unix_seconds) {
  return unix_seconds == 0 ? "-" : fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(static_cast<std::time_t>(unix_seconds)));
}

std::string best_of(const RunRecord& run) {
  if (!run.best) return "-";
  return fmt::format("{} {}", run.best->metric, history::format_metric(run, run.best->metric, run.best->value));
}

// A run that cannot be read is reported on stderr; the others are listed.
std::vector<RunRecord> read_runs(const std::filesystem::path& folder) {
  std::vector<RunRecord> runs;
  for (const auto& path : history::find_runs(folder)) {
    try {
      runs.push_back(history::read_run(path, history::Detail::kOverview));
    } catch (const Error& error) {
      make_console_logger()->warn("{}", error.what());
    }
  }
  std::ranges::sort(runs, [](const RunRecord& one, const RunRecord& other) {
    return one.started != other.started ? one.started > other.started : one.folder < other.folder;
  });
  return runs;
}

Json to_json(const RunRecord& run) {
  Json json = {{"run", run.folder.string()}, {"state", to_string(run.state)}};
  if (!run.message.empty()) json["message"] = run.message;
  json.update({{"epoch", run.epoch}, {"num_epochs", run.num_epochs}, {"step", run.step}});
  if (run.num_steps > 0) json["num_steps"] = run.num_steps;
  json["best"] = Json();
  if (run.best) {
    json["best"] = {{"metric", run.best->metric}, {"value", run.best->value}, {"epoch", run.best->epoch}, {"step", run.best->step}};
  }
  json.update({{"started", run.started}, {"updated", run.updated}, {"seconds", run.seconds}, {"where", place_of(run)}});
  return json;
}

// The rows for these keys of the experiment files, each with a value for each run. Throws UsageError for a key that no run has.
std::vector<history::Row> rows_of_keys(const std::vector<RunRecord>& runs, const std::vector<std::string>& keys) {
  if (keys.empty() || runs.empty()) return {};
  const auto all = history::config_rows(runs);
  std::vector<history::Row> rows;
  for (const auto& key : keys) {
    const auto found = std::ranges::find(all, key, &history::Row::name);
    if (found == all.end()) {
      std::vector<std::string> names;
      for (const auto& row : all) names.push_back(row.name);
      const auto nearest = nearest_name(key, names);
      throw UsageError(fmt::format(
          "no run has the key \"{}\" in its config.yaml{}", key,
          nearest.empty() ? "; write it with its section, as in optimizer.lr" : fmt::format("; did you mean \"{}\"?", nearest)));
    }
    rows.push_back(*found);
  }
  return rows;
}

std::optional<double> number_in(const std::string& text) {
  const auto number = parse_number<double>(text);
  return number && !std::isnan(*number) ? number : std::nullopt;
}

// Numbers come first, in ascending order, then other texts in alphabetical order, then missing values.
bool is_before(const std::optional<std::string>& one, const std::optional<std::string>& other) {
  if (!one || !other) return one.has_value() && !other;
  const auto number = number_in(*one);
  const auto other_number = number_in(*other);
  if (number && other_number) return *number < *other_number;
  return number.has_value() != other_number.has_value() ? number.has_value() : *one < *other;
}

// Runs with different metrics are ordered by the names of the metrics; those without a best value come last.
bool has_better_metric(const RunRecord& one, const RunRecord& other) {
  if (!one.best || !other.best) return one.best.has_value() && !other.best;
  if (one.best->metric != other.best->metric) return one.best->metric < other.best->metric;
  return is_better(one.best->value, other.best->value, one.best->higher_is_better);
}

constexpr const char* kMetric = "metric";

// Runs with equal values keep their order.
void sort_runs(std::vector<RunRecord>& runs, const std::string& by) {
  if (by == kMetric) {
    std::ranges::stable_sort(runs, has_better_metric);
  } else if (const auto rows = rows_of_keys(runs, {by}); !rows.empty()) {
    const auto& values = rows.front().values;
    std::vector<std::pair<std::optional<std::string>, RunRecord>> keyed;
    for (size_t i = 0; i < runs.size(); ++i) keyed.emplace_back(values[i], std::move(runs[i]));
    std::ranges::stable_sort(keyed, [](const auto& one, const auto& other) { return is_before(one.first, other.first); });
    for (size_t i = 0; i < runs.size(); ++i) runs[i] = std::move(keyed[i].second);
  }
}

// A header, and a line for each run with plain numbers; cells without a value are empty.
std::string to_csv(const std::vector<RunRecord>& runs, const std::vector<history::Row>& keys) {
  std::vector<std::vector<std::string>> lines = {
      {"run", "state", "epoch", "step", "metric", "best", "best_step", "started", "seconds", "where"}};
  for (const auto& row : keys) lines.front().push_back(row.name);
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    const auto& best = run.best;
    lines.push_back({run.folder.string(), to_string(run.state), fmt::format("{}", run.epoch), fmt::format("{}", run.step),
                     best ? best->metric : "", best ? fmt::format("{}", best->value) : "", best ? fmt::format("{}", best->step) : "",
                     fmt::format("{:.0f}", run.started), fmt::format("{:.3f}", run.seconds), place_of(run)});
    for (const auto& row : keys) lines.back().push_back(row.values[i].value_or(""));
  }
  std::string text;
  for (const auto& line : lines) text += csv_line(line);
  return text;
}

// If there are `keys`, columns with their values replace STARTED, TIME and WHERE.
std::string to_text(const std::vector<RunRecord>& runs, const std::vector<history::Row>& keys) {
  // The numbers are the importance of the columns (Column::importance).
  std::vector<Column> columns = {{"RUN"}, {"STATE"}, {"EPOCH", 4}, {"BEST", 5}};
  if (keys.empty()) columns.insert(columns.end(), {{"STARTED", 3}, {"TIME", 2}, {"WHERE", 1}});
  for (const auto& row : keys) columns.push_back({row.name});
  std::vector<Row> rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    auto& cells = rows.emplace_back(Row{run.folder.string(), to_string(run.state), progress_of(run), best_of(run)});
    if (keys.empty()) {
      cells.insert(cells.end(), {format_time(run.started), format_duration(std::chrono::duration<double>(run.seconds)), place_of(run)});
    }
    for (const auto& row : keys) cells.push_back(row.values[i].value_or("-"));
    for (auto& cell : cells) cell = printable_line(cell);
  }
  return to_table(columns, std::move(rows), reporting::line_width(stdout));
}

}  // namespace

ExitCode runs(const std::vector<std::string>& args) {
  CLI::App app("Lists the runs of a folder and of the folders within it, the newest first.", "trainer runs");
  std::filesystem::path folder = "runs";
  std::vector<std::string> keys;
  std::string sort;
  bool as_json = false;
  bool as_csv = false;
  app.add_option("folder", folder, "the folder with the runs; default: runs")->type_name("DIR");
  app.add_option("--columns", keys, "keys of the experiment files to show, such as optimizer.lr,seed")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("KEY,KEY");
  app.add_option("--sort", sort,
                 "order of the runs: metric (the best first), or a key of the experiment files (the smallest value first); default: the "
                 "newest first")
      ->type_name("metric|KEY");
  auto* json = app.add_flag("--json", as_json, "print a JSON array");
  app.add_flag("--csv", as_csv, "print comma-separated values")->excludes(json);
  parse(app, args);
  auto found = read_runs(folder);
  if (!sort.empty()) sort_runs(found, sort);
  const auto rows = rows_of_keys(found, keys);
  if (as_json) {
    auto array = Json::array();
    for (size_t i = 0; i < found.size(); ++i) {
      array.push_back(to_json(found[i]));
      for (const auto& row : rows) array.back()["config"][row.name] = row.values[i] ? Json(*row.values[i]) : Json();
    }
    print_json(array, 2);
  } else if (as_csv) {
    print_text(to_csv(found, rows));
  } else if (found.empty()) {
    make_console_logger()->info("no runs in {}; give the folder that holds the run directories", folder.string());
  } else {
    print_text(to_text(found, rows));
  }
  return ExitCode::kDone;
}

namespace {

// The width of tables if the output is not a terminal, or if the terminal's width is unknown.
constexpr size_t kWidthWithoutTerminal = 80;

std::string shown(const std::optional<std::string>& value) { return value ? printable_line(*value) : "-"; }

// A line for each run.
std::string to_list(const history::Row& row, const std::vector<std::string>& names) {
  std::vector<Row> lines;
  for (size_t i = 0; i < names.size(); ++i) lines.push_back({"", names[i], shown(row.values[i])});
  return printable_line(row.name) + '\n' + to_table({{""}, {""}, {""}}, std::move(lines));
}

// A table with a column for each run, followed by the rows that would make it too wide, as lists with a line for each run.
std::string to_text(const std::vector<history::Row>& rows, const char* title, const std::vector<std::string>& names) {
  const auto width = reporting::line_width(stdout).value_or(kWidthWithoutTerminal);
  std::vector<Column> columns = {{title}};
  for (const auto& name : names) columns.push_back({name});
  std::vector<size_t> widths;
  for (const auto& column : columns) widths.push_back(text_width(column.title) + kColumnGap);
  std::string list;
  std::vector<Row> fitting;
  for (const auto& row : rows) {
    Row cells = {printable_line(row.name)};
    for (const auto& value : row.values) cells.push_back(shown(value));
    auto wider = widths;
    for (size_t i = 0; i < cells.size(); ++i) wider[i] = std::max(wider[i], text_width(cells[i]) + kColumnGap);
    if (std::accumulate(wider.begin(), wider.end(), size_t{0}) - kColumnGap > width) {
      list += to_list(row, names);
      continue;
    }
    widths = std::move(wider);
    fitting.push_back(std::move(cells));
  }
  return (fitting.empty() ? std::string(title) + '\n' : to_table(columns, std::move(fitting))) + list;
}

std::vector<history::Row> differing(std::vector<history::Row> rows) {
  std::erase_if(rows, [](const history::Row& row) { return !row.differs(); });
  return rows;
}

Json to_json(const std::vector<history::Row>& rows) {
  Json object = Json::object();
  for (const auto& row : rows) {
    auto& values = object[row.name] = Json::array();
    for (const auto& value : row.values) values.push_back(value ? Json(*value) : Json());
  }
  return object;
}

}  // namespace

ExitCode compare(const std::vector<std::string>& args) {
  CLI::App app("Shows the results of runs, and the differences between their configurations and environments.", "trainer compare");
  std::vector<std::string> folders;
  bool as_json = false;
  app.add_option("runs", folders, "run directories, such as runs/a runs/b")->required()->expected(2, 100)->type_name("RUN");
  app.add_flag("--json", as_json, "print a JSON object with the values of each run, in the order of the runs");
  parse(app, args);
  std::vector<RunRecord> runs;
  for (const auto& folder : folders) runs.push_back(history::read_run(folder, history::Detail::kAll));
  const auto all_config = history::config_rows(runs);
  if (const auto note = history::note_of_validation(runs, all_config); !note.empty()) make_console_logger()->warn("{}", note);
  const auto config = differing(all_config);
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
