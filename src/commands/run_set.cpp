#include "commands/run_set.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "cli/output.h"
#include "commands/command.h"
#include "config/load.h"
#include "launch/child_process.h"
#include "run/recipe/registries.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;
using history::Json;

struct Ended {
  int code = 0;
  bool was_asked_to_stop = false;  // a stop request was forwarded to the process
};

// Runs this program with these arguments and forwards stop requests to it.
Ended run_process(const std::vector<std::string>& arguments) {
  launch::SignalQueue signals;
  const auto child = launch::start_process({.program = own_program(),
                                            .arguments = arguments,
                                            .environment = inherited_environment(),
                                            .signal_mask = signals.mask_before(),
                                            .kept_descriptors = {}});
  Ended ended;
  while (true) {
    pollfd queue{.fd = signals.descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&queue, 1, -1);
    while (const auto signal = signals.next()) {
      if (*signal == SIGCHLD) continue;
      ended.was_asked_to_stop = true;
      ::kill(child, *signal);
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) != child) continue;
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ended;
  }
}

std::vector<std::string> overrides_of(const RunSet& set, const RunSet::Run& run) {
  auto overrides = set.overrides;
  overrides.insert(overrides.end(), run.overrides.begin(), run.overrides.end());
  return overrides;
}

struct Means {
  Json mean = Json::object();
  Json deviation = Json::object();
};

Means means_of(const std::vector<Json>& validations) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<double>> values;
  for (const auto& validation : validations) {
    for (const auto& [name, value] : validation["metrics"].items()) {
      if (!value.is_number()) continue;
      if (!values.contains(name)) order.push_back(name);
      values[name].push_back(value.get<double>());
    }
  }
  Means means;
  for (const auto& name : order) {
    const auto& all = values[name];
    const auto count = static_cast<double>(all.size());
    double sum = 0, squares = 0;
    for (const double value : all) sum += value;
    for (const double value : all) squares += (value - sum / count) * (value - sum / count);
    means.mean[name] = sum / count;
    if (all.size() > 1) means.deviation[name] = std::sqrt(squares / (count - 1));
  }
  return means;
}

}  // namespace

void add_run_set(CLI::App& app, RunSet& set, const std::string& folders) {
  app.add_option("--config", set.config, "the experiment file (YAML)")->required()->type_name("FILE");
  app.add_option("--run-dir", set.folder,
                 fmt::format("the folder of the runs {}; default: <output_dir>/<experiment>_{}", folders, set.name))
      ->type_name("DIR");
  app.add_option("--nproc-per-node", set.num_processes, "processes of each run, as in `trainer launch`; default: one")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  app.add_flag("--json", set.prints_json, "print the results as JSON instead of a table");
}

void choose_folder(RunSet& set) {
  if (!set.folder.empty()) return;
  const auto experiment = config::load(set.config, set.overrides, recipe::registries_without_check());
  set.folder = fs::path(experiment.output_dir) / (experiment.experiment + "_" + set.name);
}

config::Experiment load(const RunSet& set, const RunSet::Run& run) {
  auto experiment = config::load(set.config, overrides_of(set, run), recipe::all_registries());
  if (!experiment.validation.is_off()) return experiment;
  throw UsageError("validation.every_epochs and validation.every_steps are null, but this command compares validations; set one of them");
}

void train_all(const RunSet& set, const std::function<Json()>& results, const std::function<void(const Json&)>& print_results) {
  const auto logger = make_console_logger();
  std::vector<std::string> failed;
  for (size_t i = 0; i < set.runs.size(); ++i) {
    const auto& run = set.runs[i];
    const auto folder = set.folder_of(run).string();
    logger->info("run {} of {}: {}", i + 1, set.runs.size(), folder);
    std::vector<std::string> command;
    if (set.num_processes) command = {"launch", "--nproc-per-node", std::to_string(*set.num_processes)};
    command.insert(command.end(), {"--config", set.config, "--run-dir", folder, "--resume", "auto"});
    const auto overrides = overrides_of(set, run);
    command.insert(command.end(), overrides.begin(), overrides.end());
    const auto ended = run_process(command);
    if (ended.was_asked_to_stop || ended.code == static_cast<int>(ExitCode::kStopped)) {
      throw Error("stopped on request before all runs were trained; the same command continues", ExitCode::kStopped);
    }
    if (ended.code == 0) continue;
    const auto code = ended.code < 128 ? static_cast<ExitCode>(ended.code) : ExitCode::kFailure;
    if (code == ExitCode::kFailure && set.continues_after_failure) {
      failed.push_back(run.name);
      continue;
    }
    throw Error(fmt::format("the run {} ended with exit code {}, for the reason printed above{}", run.name, ended.code,
                            code == ExitCode::kUsage ? "" : "; after the problem is fixed, the same command continues"),
                code);
  }
  const auto all = results();
  const auto file = set.folder / (set.name + ".json");
  write_file_atomically(file, all.dump(2) + '\n');
  if (set.prints_json) {
    cli::print_json(all);
  } else {
    print_results(all);
    print("\nresults: {}; for curves: trainer report {}\n", file.string(), set.folder.string());
  }
  if (failed.empty()) return;
  throw Error(fmt::format("{} of {} failed, for the reasons printed above: {}; the same command tries them again", failed.size(),
                          counted(set.runs.size(), "run"), join(failed, " ")));
}

Json best_validation(const fs::path& folder) {
  if (!history::is_run_directory(folder)) return Json::object();
  const auto run = history::read_run(folder, history::Detail::kAll);
  const auto& evaluation = run.best_evaluation.is_object() ? run.best_evaluation : run.evaluation;
  return evaluation.is_object() && evaluation.contains("metrics") ? evaluation : Json::object();
}

Json describe_runs(const RunSet& set, const std::vector<Json>& validations) {
  Json all = {{"runs", Json::array()}, {"groups", Json::array()}};
  std::vector<std::map<std::string, std::string>> groups;  // the values without seed and fold
  std::vector<std::vector<Json>> of_groups;
  for (size_t i = 0; i < set.runs.size(); ++i) {
    auto values = set.runs[i].values;
    all["runs"].push_back({{"run", set.folder_of(set.runs[i]).string()},
                           {"values", values},
                           {"step", validations[i].value("step", Json())},
                           {"num_samples", validations[i].value("num_samples", Json())},
                           {"metrics", validations[i].value("metrics", Json::object())}});
    for (const char* key : {"seed", "dataset.split.fold"}) values.erase(key);
    const auto group = static_cast<size_t>(std::ranges::find(groups, values) - groups.begin());
    if (group == groups.size()) groups.push_back(std::move(values));
    of_groups.resize(groups.size());
    if (!validations[i].empty()) of_groups[group].push_back(validations[i]);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    auto [mean, deviation] = means_of(of_groups[i]);
    all["groups"].push_back(
        {{"values", groups[i]}, {"num_runs", of_groups[i].size()}, {"mean", std::move(mean)}, {"deviation", std::move(deviation)}});
  }
  return all;
}

void print_metrics(const std::string& title, const std::string& count, const std::vector<MetricsRow>& rows) {
  std::vector<cli::Column> columns = {{title}, {count}};
  for (const auto& row : rows) {
    for (const auto& [name, value] : row.metrics.items()) {
      if (std::ranges::find(columns.begin() + 2, columns.end(), name, &cli::Column::title) == columns.end()) columns.push_back({name});
    }
  }
  std::vector<cli::Row> cells;
  for (const auto& row : rows) {
    auto& line = cells.emplace_back(cli::Row{row.title, row.count});
    for (size_t i = 2; i < columns.size(); ++i) {
      const auto value = row.metrics.value(columns[i].title, Json());
      line.push_back(value.is_number() ? fmt::format("{:.4f}", value.get<double>()) : value.is_string() ? value.get<std::string>() : "");
    }
  }
  print("{}", cli::to_table(columns, std::move(cells)));
}

}  // namespace trainer::commands
