#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/store.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/eval.h"
#include "commands/sample_progress.h"
#include "inference/operating_point.h"
#include "report/history/run_record.h"
#include "reporting/evaluation.h"
#include "reporting/values.h"
#include "run/evaluation/calibration.h"
#include "run/run_directory.h"
#include "trainer/checkpoint.h"

namespace trainer::commands {
namespace {

struct CalibrateArguments {
  std::string checkpoint;
  evaluation::EvaluationRequest request;
  std::string class_name;
  std::optional<double> miss_at_most;
  double reject_below = 0;
  bool json = false;
};

// "0.001" or "0.1%".
double parse_part(const std::string& text) {
  const bool is_percent = text.ends_with('%');
  const auto number = parse_number<double>(std::string_view(text).substr(0, text.size() - (is_percent ? 1 : 0)));
  const double value = number.value_or(1) / (is_percent ? 100 : 1);
  if (!number || !(value >= 0 && value < 1)) {
    throw UsageError(fmt::format("--miss-at-most {}: give a fraction below 1, such as 0.001 or 0.1%", text));
  }
  return value;
}

CalibrateArguments parse_calibrate_arguments(const std::vector<std::string>& args) {
  CalibrateArguments arguments;
  CLI::App app(
      "Fits the temperature of a network's probabilities, and thresholds, to images on which the network was not trained: the validation "
      "set, or --data. Stores them in the checkpoint, for predict, exported files and libtrainer_predict.\n"
      "No threshold can detect an image that shows none of the classes.",
      "trainer calibrate");
  auto& request = arguments.request;
  cli::add_checkpoint(app, arguments.checkpoint);
  app.add_option("--data", request.data, "images of another data set, as in `trainer eval`")->type_name("DIR|FILE");
  auto* name =
      app.add_option(
             "--class", arguments.class_name,
             "a class that must not be missed: an image is assigned to this class if the probability of the class reaches a threshold")
          ->type_name("NAME");
  std::string miss_at_most;
  auto* miss =
      app.add_option("--miss-at-most", miss_at_most, "the fraction of the images of that class that may be missed, such as 0.001 or 0.1%")
          ->type_name("PART")
          ->needs(name);
  name->needs(miss);
  app.add_option(
         "--reject-below", arguments.reject_below,
         "reject an image if the probability of its chosen class is below this; an image assigned to the class given by --class is never "
         "rejected")
      ->check(CLI::Range(0.0, 1.0))
      ->default_str("");
  app.add_flag("--ema", request.averaged, "calibrate the averaged parameters (training.ema)");
  app.add_flag("--json", arguments.json, "print one JSON object instead of tables (docs/evaluation.md)");
  app.add_option("overrides", request.overrides, "overrides of keys of the experiment, such as validation.batch_size=64")
      ->type_name("key=value");
  add_plugin_option(app);
  cli::parse(app, args);
  if (miss->count() > 0) arguments.miss_at_most = parse_part(miss_at_most);
  return arguments;
}

int64_t label_of(const std::string& name, const std::vector<std::string>& class_names, int64_t num_classes) {
  std::vector<std::string> names;
  for (int64_t label = 0; label < num_classes; ++label) names.push_back(reporting::name_of_class(class_names, label));
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return found - names.begin();
  throw UsageError(fmt::format("--class {}: the network has no such class; `trainer eval` lists all classes", name));
}

// Locks the run that the checkpoint belongs to, so that no training writes there meanwhile; null if it belongs to no run.
std::unique_ptr<run::RunDirectory> lock_run_of(const std::filesystem::path& file, Logger& logger) {
  const auto folder = file.parent_path().parent_path();
  if (checkpoint::folder_of_run(folder) != file.parent_path() || !history::is_run_directory(folder)) return nullptr;
  return std::make_unique<run::RunDirectory>(folder, FileLock::Options{.logger = &logger});
}

// Stores the operating point in the checkpoint, and replaces an earlier one.
void store(const network::NetworkFile& file, bool averaged, const inference::OperatingPoint& point) {
  const auto* root = std::get_if<state::Dict>(&file.tree().value());
  const state::Key key = inference::operating_point_key(averaged);
  state::Dict changed;
  for (const auto& item : root->items()) {
    if (item.key != key) changed.add(item.key, item.value);
  }
  changed.add(key, inference::tree_of(point));
  checkpoint::save(file.path(), changed);
}

// Writes calibration.json to the run directory that the checkpoint belongs to, for `trainer report`.
void write_for_report(const run::RunDirectory& directory, const network::NetworkFile& file, bool averaged, const std::string& images,
                      reporting::Json json) {
  const auto progress = file.progress();
  json["step"] = progress ? progress->step : 0;
  json["averaged"] = averaged;
  json["images"] = images;
  directory.written_files().add(directory.calibration_file());
  write_file_atomically(directory.calibration_file(), reporting::to_text(json) + '\n');
}

struct Result {
  inference::OperatingPoint point;
  evaluation::CalibrationResult before;
  evaluation::CalibrationResult after;
  evaluation::DecisionResult decisions;
};

// The precision and recall of each class for up to 50 thresholds of its probability.
reporting::Json classes_of(const evaluation::Outputs& outputs, const torch::Tensor& probabilities) {
  // The curves of more classes would make a file of many megabytes.
  constexpr int64_t kMostClasses = 200;
  auto classes = reporting::Json::array();
  if (probabilities.size(1) > kMostClasses) return classes;
  for (int64_t label = 0; label < probabilities.size(1); ++label) {
    const auto measured = evaluation::measure_precision_recall(probabilities, outputs.samples.labels, label);
    auto points = reporting::Json::array();
    for (const auto& point : measured.points) {
      points.push_back({{"threshold", point.threshold}, {"recall", point.recall}, {"precision", point.precision}});
    }
    classes.push_back({{"name", reporting::name_of_class(outputs.class_names, label)},
                       {"num_samples", measured.num_samples},
                       {"average_precision", measured.average_precision},
                       {"precision_recall", std::move(points)}});
  }
  return classes;
}

reporting::Json json_of(const Result& result, const evaluation::Outputs& outputs, const torch::Tensor& probabilities) {
  const auto& [point, before, after, decisions] = result;
  auto json = to_json(point, decisions, outputs.class_names);
  json["num_samples"] = outputs.samples.labels.size(0);
  json["loss"] = {{"before", before.loss}, {"after", after.loss}};
  json["calibration_error"] = {{"before", to_json(before.calibration_error)}, {"after", to_json(after.calibration_error)}};
  json["calibration"] = {{"before", reporting::to_json(before.bins)}, {"after", reporting::to_json(after.bins)}};
  json["classes"] = classes_of(outputs, probabilities);
  return json;
}

void print_result(const CalibrateArguments& arguments, const Result& result, const evaluation::Outputs& outputs, const std::string& file) {
  const auto& [point, before, after, decisions] = result;
  print("{} of {}; 95% intervals in brackets\n", counted(outputs.samples.labels.size(0), "image"), outputs.name);
  print("temperature        {:.4f}\n", point.temperature);
  print("loss               {:.4f} before, {:.4f} after\n", before.loss, after.loss);
  print("calibration error  {} before, {} after\n", percent(before.calibration_error), percent(after.calibration_error));
  print("{}", decisions_text(point, decisions, outputs.class_names));
  if (const auto& threshold = point.threshold) {
    const auto num_images = (outputs.samples.labels == threshold->label).sum().item<int64_t>();
    if (*arguments.miss_at_most * static_cast<double>(num_images) < 1) {
      print("                   {} of the class are too few to guarantee that at most {:g}% are missed; use about {:.0f} or more\n",
            counted(num_images, "image"), 100 * *arguments.miss_at_most, *arguments.miss_at_most > 0 ? 3 / *arguments.miss_at_most : 1e4);
    }
  }
  print("stored in {}\n", file);
}

}  // namespace

ExitCode calibrate(const std::vector<std::string>& args) {
  auto arguments = parse_calibrate_arguments(args);
  const auto logger = make_console_logger();
  SampleProgress progress("evaluated", *logger, 0, kLongWait);
  arguments.request.report = [&](int64_t num_done, int64_t num_samples) { progress.update(num_done, num_samples); };
  rank::RankProcess process;
  if (process.rank_env().world_size > 1) throw UsageError("calibrate runs in one process; start it without a launcher");
  std::unique_ptr<run::RunDirectory> lock;
  std::optional<network::NetworkFile> file;
  const auto load = [&](const config::Registries& registries) {
    // best.pt and last.pt may be links: store() must replace the checkpoint to which they point, not the link.
    std::error_code missing;
    const auto given = checkpoint::checkpoint_of(arguments.checkpoint);
    auto path = std::filesystem::canonical(given, missing);
    if (missing) path = given;
    lock = lock_run_of(path, *process.logger());
    file.emplace(path);
    return evaluation::load_evaluation(*file, arguments.request, /*rank=*/0, registries);
  };
  return process.run(load, [&](rank::RankContext& context) {
    const auto outputs = evaluation::compute_outputs(context, *file, arguments.request);
    progress.clear();
    if (!outputs) return ExitCode::kStopped;
    const auto& [logits, labels] = outputs->samples;
    Result result;
    result.point = {.temperature = evaluation::fit_temperature(outputs->samples), .reject_below = arguments.reject_below};
    const auto probabilities = (logits / result.point.temperature).softmax(1);
    if (arguments.miss_at_most) {
      const auto label = label_of(arguments.class_name, outputs->class_names, logits.size(1));
      result.point.threshold = evaluation::fit_threshold(probabilities, labels, label, *arguments.miss_at_most);
    }
    result.before = evaluation::measure_calibration(logits.softmax(1), labels);
    result.after = evaluation::measure_calibration(probabilities, labels);
    evaluation::DecisionMeter decisions(result.point);
    decisions.add(probabilities, labels);
    result.decisions = decisions.result();
    store(*file, arguments.request.averaged, result.point);
    auto json = json_of(result, *outputs, probabilities);
    if (lock) write_for_report(*lock, *file, arguments.request.averaged, outputs->name, json);
    if (arguments.json) {
      cli::print_json(json);
    } else {
      print_result(arguments, result, *outputs, file->path());
    }
    return ExitCode::kDone;
  });
}

}  // namespace trainer::commands
