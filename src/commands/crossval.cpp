// `trainer crossval`: trains the folds of a cross-validation one after another, each as its own run, and combines their results.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/eval.h"
#include "commands/run_set.h"
#include "datasets/dataset_registry.h"
#include "reporting/values.h"
#include "run/samples/open_samples.h"
#include "run/samples/split_samples.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;
using history::Json;

RunSet parse_crossval_arguments(const std::vector<std::string>& args) {
  RunSet set{.name = "crossval"};
  int64_t num_folds = 5;
  CLI::App app(
      "Cross-validation: divides the training images into parts (folds); for each fold, trains once on the other folds and validates on "
      "that fold. Prints the mean and standard deviation of the best validations, and writes them, with the combined confusion matrix, "
      "to crossval.json. The same command continues after a stop or a failure. dataset.split.group can keep related images in one fold.",
      "trainer crossval");
  add_run_set(app, set, "fold_0, fold_1 and so on");
  app.add_option("--folds", num_folds, "number of folds")->check(CLI::Range(int64_t{2}, int64_t{1000}))->capture_default_str();
  app.add_option("overrides", set.overrides, "overrides of keys of the file, such as training.epochs=5")->type_name("key=value");
  cli::parse(app, args);
  for (int64_t fold = 0; fold < num_folds; ++fold) {
    // The file may set validation_split, which cannot be given together with dataset.split.
    set.runs.push_back({.name = fmt::format("fold_{}", fold),
                        .overrides = {fmt::format("dataset.split.folds={}", num_folds), fmt::format("dataset.split.fold={}", fold),
                                      "dataset.validation_split=0"},
                        .values = {{"dataset.split.fold", std::to_string(fold)}}});
  }
  return set;
}

// Refuses what training would refuse in one of the folds, and warns of classes that are not trained on or not measured. Returns the digest
// of the split_table() of each fold.
std::vector<std::string> check_folds(const RunSet& set, Logger& logger) {
  std::vector<std::string> digests;
  std::shared_ptr<const data::Dataset> files;
  std::vector<data::Split> measured;  // kValidation for the images that one of the folds validates on
  for (size_t fold = 0; fold < set.runs.size(); ++fold) {
    const auto experiment = load(set, set.runs[fold]);
    if (!files) files = datasets::dataset_registry().make(experiment.dataset.component).open(data::Split::kTrain, *make_quiet_logger());
    const auto parts = samples::divide_files(experiment, *files).parts;
    for (const auto part : {data::Split::kTrain, data::Split::kValidation}) {
      if (std::ranges::find(parts, part) != parts.end()) continue;
      throw UsageError(
          fmt::format("{} of {} would have no images for {}; choose fewer folds, smaller groups, another dataset.split.seed, "
                      "or dataset.split.stratify: true",
                      set.runs[fold].name, set.runs.size(), part == data::Split::kTrain ? "training" : "validation"));
    }
    const auto warning = samples::describe_missing_classes(*files, parts, data::Split::kTrain);
    if (!warning.empty()) logger.warn("{}: {}", set.runs[fold].name, warning);
    measured.resize(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) measured[i] = parts[i] == data::Split::kValidation ? parts[i] : measured[i];
    digests.push_back(samples::digest_of(samples::split_table(experiment, *files)));
  }
  const auto warning = samples::describe_missing_classes(*files, measured, data::Split::kValidation);
  if (!warning.empty()) logger.warn("in all folds, {}", warning);
  return digests;
}

// Throws if an existing run was trained on other images, or on another division of them, than `digests` describe.
void check_divisions(const RunSet& set, const std::vector<std::string>& digests) {
  for (size_t fold = 0; fold < set.runs.size(); ++fold) {
    const auto folder = set.folder_of(set.runs[fold]);
    if (!fs::exists(folder / "split.csv") || samples::digest_of(read_file(folder / "split.csv")) == digests[fold]) continue;
    throw DataError(
        fmt::format("{}: the fold was trained on other images, or on another division of them, as its split.csv shows; remove this folder, "
                    "and start the same command again",
                    folder.string()));
  }
}

// Combined results of all folds: the mean of each metric and its sample standard deviation, and the sum of the confusion matrices.
Json join_folds(const RunSet& set) {
  Json classes;
  std::vector<std::vector<int64_t>> confusion;
  std::vector<Json> validations;
  for (const auto& run : set.runs) {
    const auto folder = set.folder_of(run);
    auto& evaluation = validations.emplace_back(best_validation(folder));
    if (evaluation.empty()) {
      throw DataError(
          fmt::format("{}: best_evaluation.json is missing, so the folds cannot be combined; remove the folder, and start the "
                      "same command again",
                      folder.string()));
    }
    if (!evaluation.contains("confusion")) continue;
    const auto of_fold = evaluation["confusion"].get<std::vector<std::vector<int64_t>>>();
    confusion.resize(of_fold.size(), std::vector<int64_t>(of_fold.size()));
    for (size_t i = 0; i < of_fold.size(); ++i) std::ranges::transform(confusion[i], of_fold[i], confusion[i].begin(), std::plus());
    classes = Json::array();
    for (const auto& one : evaluation["classes"]) classes.push_back(one["name"]);
  }
  const auto all = describe_runs(set, validations);
  const auto& group = all["groups"][0];
  Json joined = {{"num_folds", set.runs.size()}, {"folds", all["runs"]}, {"mean", group["mean"]}, {"deviation", group["deviation"]}};
  if (!confusion.empty()) joined.update({{"classes", classes}, {"confusion", confusion}});
  return joined;
}

void print_folds(const RunSet& set, const Json& joined) {
  std::vector<MetricsRow> rows;
  for (size_t i = 0; i < set.runs.size(); ++i) {
    const auto& fold = joined["folds"][i];
    rows.push_back({set.runs[i].name, std::to_string(fold["num_samples"].get<int64_t>()), fold["metrics"]});
  }
  rows.push_back({"mean", "", joined["mean"]});
  rows.push_back({"deviation", "", joined["deviation"]});
  print_metrics("fold", "images", rows);
  if (!joined.contains("confusion")) return;
  std::vector<std::string> names;
  for (const auto& name : joined["classes"]) names.push_back(printable_line(name.get<std::string>()));
  std::vector<int64_t> confusion;
  for (const auto& row : joined["confusion"]) {
    for (const auto& count : row) confusion.push_back(count.get<int64_t>());
  }
  print("{}", confusion_text(" of all folds", names, confusion, reporting::line_width(stdout)));
}

}  // namespace

ExitCode crossval(const std::vector<std::string>& args) {
  auto set = parse_crossval_arguments(args);
  choose_folder(set);
  const auto digests = check_folds(set, *make_console_logger());
  check_divisions(set, digests);
  const auto results = [&] {
    check_divisions(set, digests);
    return join_folds(set);
  };
  train_all(set, results, [&](const Json& joined) { print_folds(set, joined); });
  return ExitCode::kDone;
}

}  // namespace trainer::commands
