// `trainer crossval`: trains the folds of a cross-validation one after another, each as its own run, and combines their results.

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "config/load.h"
#include "datasets/registry.h"
#include "launch/child_process.h"
#include "launch/plan.h"
#include "report/history/run_record.h"
#include "run/session/build.h"
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
      "Cross-validation: divides the training images into parts (folds); for each fold, trains once on the other folds and validates on "
      "that fold. Prints the mean and standard deviation of the best validations, and writes them, with the combined confusion matrix, "
      "to crossval.json. The same command continues after a stop or a failure.",
      "trainer crossval");
  app.add_option("--config", arguments.config,
                 "the experiment file (YAML), in which dataset.split.group can keep related images in one fold")
      ->required()
      ->type_name("FILE");
  app.add_option("--folds", arguments.num_folds, "number of folds")->check(CLI::Range(int64_t{2}, int64_t{1000}))->capture_default_str();
  app.add_option("--run-dir", arguments.run_directory,
                 "the folder of the runs fold_0, fold_1 and so on; default: <output_dir>/<experiment>_crossval")
      ->type_name("DIR");
  app.add_option("--nproc-per-node", arguments.num_processes, "processes of each run, as in `trainer launch`; default: one")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  app.add_flag("--json", arguments.json, "print crossval.json instead of a table");
  app.add_option("overrides", arguments.overrides, "overrides of keys of the file, such as training.epochs=5")->type_name("key=value");
  cli::parse(app, args);
  return arguments;
}

struct Ended {
  int code = 0;
  bool was_asked_to_stop = false;  // a stop request was forwarded to the process
};

// Runs this program with these arguments and forwards stop requests to it.
Ended run_process(const std::vector<std::string>& arguments) {
  launch::SignalQueue signals;
  const auto child = launch::start_process({.program = fs::read_symlink("/proc/self/exe").string(),
                                            .arguments = arguments,
                                            .environment = launch::inherited_environment(),
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

fs::path folder_of(const CrossvalArguments& arguments, int64_t fold) { return arguments.run_directory / fmt::format("fold_{}", fold); }

std::vector<std::string> overrides_of(const CrossvalArguments& arguments, int64_t fold) {
  auto overrides = arguments.overrides;
  overrides.push_back(fmt::format("dataset.split.folds={}", arguments.num_folds));
  overrides.push_back(fmt::format("dataset.split.fold={}", fold));
  // The file may set this key, which cannot be given together with dataset.split.
  overrides.emplace_back("dataset.validation_split=0");
  return overrides;
}

void train_fold(const CrossvalArguments& arguments, int64_t fold) {
  std::vector<std::string> command;
  if (arguments.num_processes) command = {"launch", "--nproc-per-node", std::to_string(*arguments.num_processes)};
  for (const auto& part : {"--config", arguments.config.c_str(), "--run-dir"}) command.emplace_back(part);
  command.push_back(folder_of(arguments, fold).string());
  command.insert(command.end(), {"--resume", "auto"});
  const auto of_fold = overrides_of(arguments, fold);
  command.insert(command.end(), of_fold.begin(), of_fold.end());
  const auto ended = run_process(command);
  if (ended.was_asked_to_stop || ended.code == static_cast<int>(ExitCode::kStopped)) {
    throw Error("stopped on request before all folds were trained; the same command continues", ExitCode::kStopped);
  }
  if (ended.code == 0) return;
  const auto code = ended.code < 128 ? static_cast<ExitCode>(ended.code) : ExitCode::kFailure;
  throw Error(fmt::format("the run of fold {} ended with exit code {}, for the reason printed above{}", fold + 1, ended.code,
                          code == ExitCode::kUsage ? "" : "; after the problem is fixed, the same command continues"),
              code);
}

// Reports what training would refuse in one of the folds, before the first fold is trained.
void check_folds(const CrossvalArguments& arguments, Logger& logger) {
  std::shared_ptr<const data::Dataset> files;
  for (int64_t fold = 0; fold < arguments.num_folds; ++fold) {
    const auto experiment = config::load(arguments.config, overrides_of(arguments, fold), session::all_registries());
    if (experiment.validation.is_off()) {
      throw UsageError(
          "validation.every_epochs and validation.every_steps are null, but a cross-validation needs validations; set one of them");
    }
    if (!files) files = datasets::dataset_registry().make(experiment.dataset.component).open(data::Split::kTrain, logger);
    const auto parts = session::divide_files(experiment, *files).parts;
    for (const auto part : {data::Split::kTrain, data::Split::kValidation}) {
      if (std::ranges::find(parts, part) != parts.end()) continue;
      throw UsageError(
          fmt::format("fold {} of {} would have no images for {}; choose fewer folds, smaller groups, another dataset.split.seed, "
                      "or dataset.split.stratify: true",
                      fold + 1, arguments.num_folds, part == data::Split::kTrain ? "training" : "validation"));
    }
  }
}

// The best validation of a fold, as written by its run.
Json evaluation_of(const CrossvalArguments& arguments, int64_t fold) {
  const auto run = history::read_run(folder_of(arguments, fold).string(), history::Detail::kAll);
  const auto& evaluation = run.best_evaluation.is_object() ? run.best_evaluation : run.evaluation;
  if (evaluation.is_object() && evaluation.contains("metrics")) return evaluation;
  throw DataError(
      fmt::format("{}: best_evaluation.json is missing, so the folds cannot be combined; remove the folder, and start the same "
                  "command again",
                  folder_of(arguments, fold).string()));
}

// Checks that each sample outside the test part was validated on exactly once, and that all folds had the same samples.
void check_samples(const CrossvalArguments& arguments) {
  std::vector<std::string> samples;  // of the first fold, without their parts
  std::vector<int> times;
  for (int64_t fold = 0; fold < arguments.num_folds; ++fold) {
    std::istringstream table(read_file(folder_of(arguments, fold) / "split.csv"));
    std::vector<std::string> of_fold;
    for (std::string line; std::getline(table, line);) {
      const auto part = line.substr(line.rfind(',') + 1);
      of_fold.push_back(line.substr(0, line.rfind(',')));
      times.resize(std::max(times.size(), of_fold.size()));
      times[of_fold.size() - 1] += part == "validation" ? 1 : part == "test" ? static_cast<int>(arguments.num_folds) : 0;
    }
    if (fold == 0) samples = of_fold;
    if (of_fold == samples) continue;
    throw DataError(
        fmt::format("{} and {} did not use the same data set, because their split.csv files list different images; remove the older of "
                    "these folders, and start the same command again",
                    folder_of(arguments, fold).string(), folder_of(arguments, 0).string()));
  }
  // Samples of the test part were counted num_folds times in each fold. The first line is the header.
  const auto is_wrong = [&](int count) { return count != 1 && count != arguments.num_folds * arguments.num_folds; };
  if (times.empty() || std::none_of(times.begin() + 1, times.end(), is_wrong)) return;
  throw DataError(
      fmt::format("{}: the images were divided into folds in different ways, so some were used for validation twice or never; remove the "
                  "folder, and start the same command again",
                  arguments.run_directory.string()));
}

// Combined results of all folds: the mean of each metric and its sample standard deviation, and the sum of the confusion matrices.
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
      const auto text = metrics.contains(name) && metrics[name].is_number() ? fmt::format("{:.4f}", metrics[name].get<double>()) : "";
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
  const auto logger = make_console_logger();
  if (arguments.run_directory.empty()) {
    auto registries = session::all_registries();
    registries.check = {};
    const auto experiment = config::load(arguments.config, arguments.overrides, registries);
    arguments.run_directory = fs::path(experiment.output_dir) / (experiment.experiment + "_crossval");
  }
  check_folds(arguments, *make_quiet_logger());
  for (int64_t fold = 0; fold < arguments.num_folds; ++fold) {
    logger->info("fold {} of {}: {}", fold + 1, arguments.num_folds, folder_of(arguments, fold).string());
    train_fold(arguments, fold);
  }
  check_samples(arguments);
  const auto joined = join_folds(arguments);
  const auto file = arguments.run_directory / "crossval.json";
  write_file_atomically(file, joined.dump(2) + '\n');
  if (arguments.json) {
    cli::print_json(joined);
  } else {
    print_folds(joined);
    print("\nresults: {}; for curves: trainer report {}\n", file.string(), arguments.run_directory.string());
  }
  return ExitCode::kDone;
}

}  // namespace trainer::commands
