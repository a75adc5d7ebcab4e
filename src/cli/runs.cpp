#include "cli/runs.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/table.h"
#include "history/run_record.h"
#include "reporting/line.h"

namespace trainer::cli {
namespace {

using history::Json;
using history::RunRecord;

std::string format_time(double unix_seconds) {
  return unix_seconds == 0 ? "-" : fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(static_cast<std::time_t>(unix_seconds)));
}

std::string best_of(const RunRecord& run) {
  if (!run.best) return "-";
  return fmt::format("{} {}", run.best->metric, history::format_metric(run.best->metric, run.best->value));
}

// A run that cannot be read is named on stderr; the others are listed.
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

std::string to_text(const std::vector<RunRecord>& runs) {
  // The least important are left out first in a narrow terminal.
  std::vector<Column> columns = {{"RUN", {}, 0},     {"STATE", {}, 0}, {"EPOCH", {}, 4}, {"BEST", {}, 5},
                                 {"STARTED", {}, 3}, {"TIME", {}, 2},  {"WHERE", {}, 1}};
  for (const auto& run : runs) {
    const std::vector<std::string> cells = {
        run.folder.string(), to_string(run.state),     progress_of(run),
        best_of(run),        format_time(run.started), format_duration(std::chrono::duration<double>(run.seconds)),
        place_of(run)};
    for (size_t i = 0; i < cells.size(); ++i) columns[i].cells.push_back(printable(cells[i]));
  }
  return to_table(std::move(columns), reporting::line_width(stdout));
}

}  // namespace

ExitCode runs(const std::vector<std::string>& args) {
  CLI::App app("Lists the runs of a folder and of the folders within it, the newest first.", "trainer runs");
  std::filesystem::path folder = "runs";
  bool as_json = false;
  app.add_option("folder", folder, "the folder with the runs; default: runs")->type_name("DIR");
  app.add_flag("--json", as_json, "print a JSON array");
  parse(app, args);
  const auto found = read_runs(folder);
  if (as_json) {
    auto array = Json::array();
    for (const auto& run : found) array.push_back(to_json(run));
    fmt::print("{}\n", array.dump(2, ' ', false, Json::error_handler_t::replace));
  } else if (found.empty()) {
    make_console_logger()->info("no runs in {}", folder.string());
  } else {
    fmt::print("{}", to_text(found));
  }
  return ExitCode::kDone;
}

}  // namespace trainer::cli
