// `trainer crossval`: trains the folds of a cross-validation one after another, each as its own run, and combines their results.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/eval.h"
#include "commands/pictures.h"
#include "commands/run_set.h"
#include "commands/sample_progress.h"
#include "datasets/dataset_registry.h"
#include "launch/world/host_resources.h"
#include "reporting/evaluation.h"
#include "reporting/values.h"
#include "run/evaluation/calibration.h"
#include "run/evaluation/suspected_labels.h"
#include "run/recipe/registries.h"
#include "run/samples/open_samples.h"
#include "run/samples/split_samples.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;
using history::Json;

struct CrossvalArguments {
  RunSet set{.name = "crossval"};
  bool checks_labels = false;
};

CrossvalArguments parse_crossval_arguments(const std::vector<std::string>& args) {
  CrossvalArguments arguments;
  auto& set = arguments.set;
  int64_t num_folds = 5;
  CLI::App app(
      "Cross-validation: divides the training images into parts (folds); for each fold, trains once on the other folds and validates on "
      "that fold. Prints the mean and standard deviation of the best validations, and writes them, with the combined confusion matrix, "
      "to crossval.json. The same command continues after a stop or a failure. dataset.split.group can keep related images in one fold.",
      "trainer crossval");
  add_run_set(app, set, "fold_0, fold_1 and so on");
  app.add_option("--folds", num_folds, "number of folds")->check(CLI::Range(int64_t{2}, int64_t{1000}))->capture_default_str();
  app.add_flag("--check-labels", arguments.checks_labels,
               "after the training, also find the images whose labels are probably wrong, because the network of their fold, which was not "
               "trained on them, is confident of another class; writes suspected_labels.csv and suspected_labels.html");
  app.add_option("overrides", set.overrides, "overrides of keys of the file, such as training.epochs=5")->type_name("key=value");
  cli::parse(app, args);
  for (int64_t fold = 0; fold < num_folds; ++fold) {
    // The file may set validation_split, which cannot be given together with dataset.split.
    set.runs.push_back({.name = fmt::format("fold_{}", fold),
                        .overrides = {fmt::format("dataset.split.folds={}", num_folds), fmt::format("dataset.split.fold={}", fold),
                                      "dataset.validation_split=0"},
                        .values = {{"dataset.split.fold", std::to_string(fold)}}});
  }
  return arguments;
}

// Refuses what training would refuse in one of the folds, and warns of classes that are not trained on or not measured. Returns the digest
// of the split_table() of each fold.
std::vector<std::string> check_folds(const CrossvalArguments& arguments, Logger& logger) {
  const auto& [set, checks_labels] = arguments;
  std::vector<std::string> digests;
  std::shared_ptr<const data::Dataset> files;
  std::vector<data::Split> measured;  // kValidation for the images that one of the folds validates on
  for (size_t fold = 0; fold < set.runs.size(); ++fold) {
    const auto experiment = load(set, set.runs[fold]);
    if (!files) files = datasets::dataset_registry().make(experiment.dataset.component).open(data::Split::kTrain, *make_quiet_logger());
    if (checks_labels && experiment.dataset.on_error == config::OnError::kSkip) {
      throw UsageError("--check-labels needs every image of a fold, but dataset.on_error is skip; set it to fail");
    }
    if (checks_labels && experiment.task.component.name != "classification") {
      throw UsageError(
          fmt::format("--check-labels needs one class for each image, but the task is {}; leave it out", experiment.task.component.name));
    }
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

// The images whose labels are probably wrong, by the networks of the folds.
struct LabelCheck {
  std::shared_ptr<const data::Dataset> files;
  std::vector<evaluation::SuspectedLabel> suspected;  // of samples of the files, the most doubtful first
  int64_t num_samples = 0;

  std::string class_name(int64_t label) const { return reporting::name_of_class(files->info().class_names, label); }
};

LabelCheck check_labels(const RunSet& set, const std::shared_ptr<Logger>& logger) {
  std::vector<torch::Tensor> probabilities, labels;
  std::vector<int64_t> indices;  // in the files, in the order in which the folds are evaluated
  LabelCheck check;
  for (const auto& run : set.runs) {
    SampleProgress progress(run.name + ": evaluated", *logger, 0, kLongWait);
    evaluation::EvaluationRequest request;
    request.report = [&](int64_t num_done, int64_t num_samples) { progress.update(num_done, num_samples); };
    const network::NetworkFile file(set.folder_of(run));
    rank::RankContext context(evaluation::load_evaluation(file, request, /*rank=*/0, recipe::all_registries()),
                              {.num_threads = world::default_compute_threads().count}, logger);
    if (!check.files) check.files = samples::dataset_of(context.experiment()).open(data::Split::kTrain, *make_quiet_logger());
    const auto parts = samples::divide_files(context.experiment(), *check.files).parts;
    const auto outputs = evaluation::compute_outputs(context, file, request);
    progress.clear();
    if (!outputs) throw Error("stopped on request before the labels were checked; the same command continues", ExitCode::kStopped);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] == data::Split::kValidation) indices.push_back(static_cast<int64_t>(i));
    }
    probabilities.push_back(outputs->samples.logits.softmax(1));
    labels.push_back(outputs->samples.labels);
  }
  check.num_samples = std::ssize(indices);
  check.suspected = evaluation::find_suspected_labels(torch::cat(probabilities), torch::cat(labels));
  for (auto& suspect : check.suspected) suspect.sample = indices[static_cast<size_t>(suspect.sample)];
  return check;
}

fs::path page_of_suspected_labels(const RunSet& set) { return set.folder / "suspected_labels.html"; }

std::string suspected_labels_csv(const LabelCheck& check) {
  auto table = csv_line({"path", "label", "suggested", "probability_of_label", "probability_of_suggested"});
  for (const auto& suspect : check.suspected) {
    table += csv_line({check.files->origin(suspect.sample).key, check.class_name(suspect.label), check.class_name(suspect.suggested),
                       fmt::format("{:.6f}", suspect.probability), fmt::format("{:.6f}", suspect.probability_of_suggested)});
  }
  return table;
}

std::string suspected_labels_page(const LabelCheck& check, const std::string& name) {
  constexpr size_t kMostShown = 200;
  constexpr size_t kMostPairs = 12;
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  for (const auto& suspect : check.suspected) ++counts[{suspect.label, suspect.suggested}];
  std::vector<std::pair<int64_t, std::string>> pairs;
  for (const auto& [classes, count] : counts)
    pairs.emplace_back(-count, check.class_name(classes.first) + " → " + check.class_name(classes.second));
  std::ranges::sort(pairs);
  pairs.resize(std::min(kMostPairs, pairs.size()));
  std::string rows;
  for (const auto& [count, title] : pairs)
    rows += fmt::format("<tr><td>{}</td><td class=\"number\">{}</td><td></td></tr>\n", to_html(title), -count);
  const auto num_shown = std::min(kMostShown, check.suspected.size());
  auto section = fmt::format(
      "<section><h2>The most doubtful labels</h2>\n<p class=\"muted\">{} of {}; suspected_labels.csv lists all.</p>\n"
      "<div class=\"finds single\">\n",
      num_shown, check.suspected.size());
  for (size_t i = 0; i < num_shown; ++i) {
    const auto& suspect = check.suspected[i];
    const auto read = [&](data::Scratch& scratch) { return check.files->read(suspect.sample, scratch); };
    const auto title = fmt::format("{} {:.1f}% → {} {:.1f}%", check.class_name(suspect.label), 100 * suspect.probability,
                                   check.class_name(suspect.suggested), 100 * suspect.probability_of_suggested);
    section +=
        "<div class=\"panel\">" + to_figure(read, check.files->info().decoding, title, check.files->describe(suspect.sample)) + "</div>\n";
  }
  const auto summary =
      fmt::format("{} of {} have labels that are probably wrong", check.suspected.size(), counted(check.num_samples, "image"));
  return make_image_page("Suspected labels of " + name, summary, rows, section + "</div></section>\n");
}

// Writes the list and the page, and returns the summary in crossval.json.
Json write_suspected_labels(const RunSet& set, const LabelCheck& check) {
  const auto table = set.folder / "suspected_labels.csv";
  write_file_atomically(table, suspected_labels_csv(check));
  write_file_atomically(page_of_suspected_labels(set), suspected_labels_page(check, set.folder.filename().string()));
  return {{"num_suspected", check.suspected.size()}, {"num_samples", check.num_samples}, {"file", table.string()}};
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
  auto arguments = parse_crossval_arguments(args);
  auto& set = arguments.set;
  choose_folder(set);
  const auto logger = make_console_logger();
  const auto digests = check_folds(arguments, *logger);
  check_divisions(set, digests);
  const auto results = [&] {
    check_divisions(set, digests);
    auto joined = join_folds(set);
    if (arguments.checks_labels) joined["suspected_labels"] = write_suspected_labels(set, check_labels(set, logger));
    return joined;
  };
  train_all(set, results, [&](const Json& joined) {
    print_folds(set, joined);
    if (!arguments.checks_labels) return;
    const auto& check = joined["suspected_labels"];
    print("\nlabels that are probably wrong: {} of {}, in {}; with the images: {}\n", check["num_suspected"].get<size_t>(),
          counted(check["num_samples"].get<int64_t>(), "image"), check["file"].get<std::string>(), page_of_suspected_labels(set).string());
  });
  return ExitCode::kDone;
}

}  // namespace trainer::commands
