// `trainer crossval`: trains the folds of a cross-validation one after another, each as a run of its own, and joins their results.

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "config/load.h"
#include "launch/child_process.h"
#include "launch/plan.h"
#include "report/history/run_record.h"
#include "run/session/registries.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;
using history::Json;

struct CrossvalArguments {
  std::string config;
  std::vector<std::string> overrides;
  fs::path run_directory;
  int64_t num_folds = 5;
  std::optional<int64_t> num_processes;
  bool json = false;
};

CrossvalArguments parse_crossval_arguments(const std::vector<std::string>& args) {
  CrossvalArguments arguments;
  CLI::App app(
      "Cross-validation: trains once for each of several parts (folds) of the training images, which is validated on and which the other "
      "parts train for. Prints the mean and the deviation of the best validations, and writes them, with the joined confusion matrix, to "
      "crossval.json. The same command continues after a stop or a failure.",
      "trainer crossval");
  app.add_option("--config", arguments.config, "the experiment file (YAML); dataset.split has the groups that stay together")
      ->required()
      ->type_name("FILE");
  app.add_option("--folds", arguments.num_folds, "how many folds")->check(CLI::Range(int64_t{2}, int64_t{1000}))->capture_default_str();
  app.add_option("--run-dir", arguments.run_directory,
                 "the folder of the runs fold_0, fold_1 and so on; default: <output_dir>/<experiment>_crossval")
      ->type_name("DIR");
  app.add_option("--nproc-per-node", arguments.num_processes, "processes of each training, as of `trainer launch`; default: one")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  app.add_flag("--json", arguments.json, "print crossval.json instead of a table");
  app.add_option("overrides", arguments.overrides, "keys to set to other values than in the file, such as training.epochs=5")
      ->type_name("key=value");
  cli::parse(app, args);
  return arguments;
}

// The exit code of the process. A stop request is passed on to it.
int run_process(const std::vector<std::string>& arguments) {
  launch::SignalQueue signals;
  const auto child = launch::start_process({.program = fs::read_symlink("/proc/self/exe").string(),
                                            .arguments = arguments,
                                            .environment = launch::inherited_environment(),
                                            .signal_mask = signals.mask_before(),
                                            .kept_descriptors = {}});
  while (true) {
    pollfd queue{.fd = signals.descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&queue, 1, -1);
    while (const auto signal = signals.next()) {
      if (*signal != SIGCHLD) ::kill(child, *signal);
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
}

fs::path folder_of(const CrossvalArguments& arguments, int64_t fold) { return arguments.run_directory / fmt::format("fold_{}", fold); }

void train_fold(const CrossvalArguments& arguments, int64_t fold) {
  std::vector<std::string> command;
  if (arguments.num_processes) command = {"launch", "--nproc-per-node", std::to_string(*arguments.num_processes)};
  for (const auto& part : {"--config", arguments.config.c_str(), "--run-dir"}) command.emplace_back(part);
  command.push_back(folder_of(arguments, fold).string());
  command.insert(command.end(), {"--resume", "auto"});
  command.insert(command.end(), arguments.overrides.begin(), arguments.overrides.end());
  command.push_back(fmt::format("dataset.split.folds={}", arguments.num_folds));
  command.push_back(fmt::format("dataset.split.fold={}", fold));
  const auto code = run_process(command);
  if (code == 0) return;
  const auto is_stopped = code == static_cast<int>(ExitCode::kStopped);
  throw Error(fmt::format("the training of fold {} {}; the same command continues", fold,
                          is_stopped ? "was stopped on request" : fmt::format("ended with exit code {}, for the reason above", code)),
              code < 128 ? static_cast<ExitCode>(code) : ExitCode::kFailure);
}

// The best validation of a fold, as its run has written it.
Json evaluation_of(const CrossvalArguments& arguments, int64_t fold) {
  const auto run = history::read_run(folder_of(arguments, fold).string(), history::Detail::kAll);
  const auto& evaluation = run.best_evaluation.is_object() ? run.best_evaluation : run.evaluation;
  if (evaluation.is_object() && evaluation.contains("metrics")) return evaluation;
  throw DataError(fmt::format("{}: it holds no best_evaluation.json, so that there is nothing to join; remove the folder, and start again",
                              folder_of(arguments, fold).string()));
}

// Joined results of all folds: the mean of each metric and its sample standard deviation, and the sum of the confusion matrices.
Json join_folds(const CrossvalArguments& arguments) {
  Json joined = {{"num_folds", arguments.num_folds}, {"folds", Json::array()}, {"mean", Json::object()}, {"deviation", Json::object()}};
  std::vector<std::vector<int64_t>> confusion;
  std::vector<std::string> order;
  std::map<std::string, std::vector<double>> values;
  for (int64_t fold = 0; fold < arguments.num_folds; ++fold) {
    const auto evaluation = evaluation_of(arguments, fold);
    joined["folds"].push_back({{"run", folder_of(arguments, fold).string()},
                               {"step", evaluation["step"]},
                               {"num_samples", evaluation["num_samples"]},
                               {"metrics", evaluation["metrics"]}});
    for (const auto& [name, value] : evaluation["metrics"].items()) {
      if (!value.is_number()) continue;
      if (!values.contains(name)) order.push_back(name);
      values[name].push_back(value.get<double>());
    }
    if (!evaluation.contains("confusion")) continue;
    const auto of_fold = evaluation["confusion"].get<std::vector<std::vector<int64_t>>>();
    confusion.resize(of_fold.size(), std::vector<int64_t>(of_fold.size()));
    for (size_t i = 0; i < of_fold.size(); ++i) std::ranges::transform(confusion[i], of_fold[i], confusion[i].begin(), std::plus());
    joined["classes"] = Json::array();
    for (const auto& one : evaluation["classes"]) joined["classes"].push_back(one["name"]);
  }
  for (const auto& name : order) {
    const auto& all = values[name];
    const auto count = static_cast<double>(all.size());
    double sum = 0, squares = 0;
    for (const double value : all) sum += value;
    for (const double value : all) squares += (value - sum / count) * (value - sum / count);
    joined["mean"][name] = sum / count;
    joined["deviation"][name] = all.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
  }
  if (!confusion.empty()) joined["confusion"] = confusion;
  return joined;
}

void print_folds(const Json& joined) {
  std::vector<std::string> names;
  for (const auto& [name, value] : joined["mean"].items()) names.push_back(name);
  const auto print_row = [&](const std::string& title, const std::string& images, const Json& metrics) {
    print("{:<10} {:>8}", title, images);
    for (const auto& name : names) {
      const auto text = metrics.contains(name) ? fmt::format("{:.4f}", metrics[name].get<double>()) : "";
      print("  {:>{}}", text, std::max<size_t>(name.size(), 8));
    }
    print("\n");
  };
  print("{:<10} {:>8}", "fold", "images");
  for (const auto& name : names) print("  {:>8}", name);
  print("\n");
  for (const auto& fold : joined["folds"]) {
    print_row(fs::path(fold["run"].get<std::string>()).filename().string(), fmt::format("{}", fold["num_samples"].get<int64_t>()),
              fold["metrics"]);
  }
  print_row("mean", "", joined["mean"]);
  print_row("deviation", "", joined["deviation"]);
  if (!joined.contains("confusion")) return;
  print("\nconfusion matrix of all folds (rows: actual, columns: predicted)\n");
  for (size_t i = 0; i < joined["confusion"].size(); ++i) {
    print("{:<20}", joined["classes"][i].get<std::string>());
    for (const auto& count : joined["confusion"][i]) print(" {:>7}", count.get<int64_t>());
    print("\n");
  }
}

}  // namespace

ExitCode crossval(const std::vector<std::string>& args) {
  auto arguments = parse_crossval_arguments(args);
  if (arguments.run_directory.empty()) {
    auto registries = session::all_registries();
    registries.check = {};
    const auto experiment = config::load(arguments.config, arguments.overrides, registries);
    arguments.run_directory = fs::path(experiment.output_dir) / (experiment.experiment + "_crossval");
  }
  const auto logger = make_console_logger();
  for (int64_t fold = 0; fold < arguments.num_folds; ++fold) {
    logger->info("fold {} of {}: {}", fold + 1, arguments.num_folds, folder_of(arguments, fold).string());
    train_fold(arguments, fold);
  }
  const auto joined = join_folds(arguments);
  const auto file = arguments.run_directory / "crossval.json";
  write_file_atomically(file, joined.dump(2) + '\n');
  if (arguments.json) {
    cli::print_json(joined);
  } else {
    print_folds(joined);
    print("\nresults: {}; for curves: trainer report {}\n", file.string(), (arguments.run_directory / "fold_*").string());
  }
  return ExitCode::kDone;
}

}  // namespace trainer::commands
