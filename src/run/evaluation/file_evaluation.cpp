#include "run/evaluation/file_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/signal.h"
#include "base/text.h"
#include "config/differences.h"
#include "config/load.h"
#include "datasets/csv.h"
#include "datasets/image_folder.h"
#include "datasets/lmdb.h"
#include "datasets/lmdb_file.h"
#include "distributed/agreement.h"
#include "run/recipe/build.h"
#include "run/recipe/check.h"
#include "run/recipe/registries.h"
#include "run/samples/shared_samples.h"
#include "run/samples/split_samples.h"
#include "run/session/resume.h"
#include "train/task/classification.h"
#include "train/task/multi_label.h"
#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::evaluation {
namespace {

engine::DataSource open_data(rank::RankContext& context, const std::optional<EvaluationData>& evaluated, const engine::Network& network) {
  const auto& experiment = context.experiment();
  auto& logger = context.logger();
  auto samples = samples::open_together(context.this_rank(), [&] {
    return engine::TrainingSamples{{.train = samples::open_split(experiment, evaluated->dataset, evaluated->split, logger)}, std::nullopt};
  });
  return context.barrier().make_on_all_ranks([&] {
    return recipe::make_source(recipe::recipe_of(experiment, logger), experiment.dataset.validation_transforms, network.placement,
                               context.ranks(), std::move(samples.opened.train));
  });
}

// The thresholds of a network with several classes for a sample, or what the file stores if the network was calibrated; none with
// request.observe, because the outputs then go to that function instead of a meter.
std::optional<inference::OperatingPoint> operating_point_of(const config::Experiment& experiment, const network::NetworkFile& file,
                                                            const EvaluationRequest& request) {
  if (request.observe) return std::nullopt;
  const bool is_calibrated = state::View(file.tree(), file.path()).find(inference::operating_point_key(request.averaged)).has_value();
  if (!is_calibrated && experiment.task.component.name != "multi_label") return std::nullopt;
  return inference::read_operating_point(file.tree(), file.path(), request.averaged, network::samples_of(experiment, file));
}

// Computes the results of an operating point on the samples of all ranks.
class OperatingPointMeter {
 public:
  explicit OperatingPointMeter(const inference::OperatingPoint& point) : point_(point), decisions_(point), calibration_(torch::kCPU) {}

  void add(const torch::Tensor& outputs, const torch::Tensor& targets) {
    const auto probabilities = inference::answers_of(point_, outputs).cpu();
    const auto labels = targets.cpu();
    const auto [confidence, predicted] = probabilities.max(1);
    calibration_.add(confidence.nan_to_num(/*nan=*/0), predicted.eq(labels));
    decisions_.add(probabilities, labels);
  }
  void reduce(const distributed::ProcessGroup& group) {
    calibration_.reduce(group);
    decisions_.reduce(group);
  }
  EvaluationResult::OperatingPointResult result() const { return {point_, calibration_.expected_error(), decisions_.result()}; }

 private:
  inference::OperatingPoint point_;
  DecisionMeter decisions_;
  task::CalibrationMeter calibration_;
};

config::Experiment experiment_of_training(const network::NetworkFile& file, const EvaluationRequest& request);

// Whether a group may now be in another part than in training. Without stratification, a group's part depends only on its name and on
// dataset.split, so new images do not move it.
bool may_be_divided_otherwise(const config::Experiment& experiment, const network::NetworkFile& file, const EvaluationRequest& request,
                              const engine::Samples& samples) {
  const auto& split = experiment.dataset.split;
  const auto stored = state::View(file.tree(), file.path()).find("split_digest");
  if (!split || !stored || stored->text() == samples::digest_of(samples::split_table(experiment, samples.files()))) return false;
  return split->stratify || split != experiment_of_training(file, request).dataset.split;
}

}  // namespace

std::optional<EvaluationResult> evaluate(rank::RankContext& context, const network::NetworkFile& file, const EvaluationRequest& request) {
  const auto& ranks = context.ranks();
  context.begin_run("");
  context.barrier().on_all_ranks([&] { network::require_target_summary(context.experiment(), file); });
  std::optional<OperatingPointMeter> operating;
  auto observe = request.observe;
  std::optional<task::ThresholdMeter> at_thresholds;
  const auto point = operating_point_of(context.experiment(), file, request);
  if (point && point->kind == inference::AnswerKind::kClasses) {
    at_thresholds.emplace(point->thresholds);
    observe = [&](const torch::Tensor& outputs, const torch::Tensor& targets) {
      at_thresholds->add(inference::answers_of(*point, outputs).cpu(), targets.cpu());
    };
  } else if (point) {
    operating.emplace(*point);
    observe = [&](const torch::Tensor& outputs, const torch::Tensor& targets) { operating->add(outputs, targets); };
  }
  auto network = context.barrier().make_on_all_ranks([&] {
    auto built = recipe::build_network(context.experiment(), context.placement(), ranks,
                                       [&](models::Model& model) { file.load_weights(request.averaged, model); });
    if (built.task->needs_target_summary()) {
      built.task->set_target_summary(inference::read_target_summary(state::View(file.tree(), file.path())));
    }
    return built;
  });
  std::optional<EvaluationData> evaluated;
  context.barrier().on_all_ranks([&] {
    if (ranks.reads_data()) evaluated = find_evaluation_data(context.experiment(), file, request);
  });
  if (context.rank() == 0 && !evaluated->note.empty()) context.logger().warn("{}", evaluated->note);
  auto source = open_data(context, evaluated, network);
  const auto& info = source.samples.info();
  if (context.rank() == 0 && may_be_divided_otherwise(context.experiment(), file, request, source.samples)) {
    context.logger().warn(
        "dataset.split divides these images differently than in training, so training may have used some of the evaluated "
        "images; to rule this out, evaluate the data of the training run with its dataset.split");
  }
  context.barrier().on_rank0([&] {
    session::check_names(file.tree(), file.path(), info, "evaluate data with the same classes",
                         "choose the same targets with dataset.columns, in the same order as in training");
    return std::string();
  });
  try {
    distributed::StopConsensus stop_consensus(ranks.control);
    const auto should_stop = [&](int64_t num_done) {
      if (request.report && context.rank() == 0) request.report(num_done, source.samples.size());
      return stop_consensus.any_requested(stop_signal() != 0);
    };
    auto measured = engine::evaluate_model(network, ranks, source, context.experiment().validation.tta, should_stop, observe);
    stop_consensus.finish();
    if (!measured) return std::nullopt;
    if (operating) operating->reduce(*ranks.world);
    reporting::Metrics refitted;
    if (at_thresholds) {
      at_thresholds->reduce(*ranks.world);
      refitted = at_thresholds->replace_in(*measured);
    }
    return EvaluationResult{.measured = std::move(*measured),
                            .output_names = info.output_names(),
                            .is_image = info.is_image,
                            .is_all = evaluated && evaluated->is_all,
                            .name = evaluated ? evaluated->name : "",
                            .operating_point = operating ? std::optional(operating->result()) : std::nullopt,
                            .refitted_metrics = std::move(refitted)};
  } catch (const std::exception& error) {
    context.end_failed_gpu(error);
    throw;
  }
}

namespace {

namespace fs = std::filesystem;
using data::DatasetFactory;
using data::Split;

// A data set whose labels are converted to another list of classes, matched by name.
class Relabelled : public data::Decorator {
 public:
  // `labels`: the new label for each old label.
  Relabelled(std::unique_ptr<data::Dataset> dataset, data::DatasetInfo info, std::vector<int64_t> labels)
      : Decorator(std::move(dataset)), info_(std::move(info)), labels_(std::move(labels)) {}

  const data::DatasetInfo& info() const override { return info_; }
  data::Sample read(int64_t index, data::Scratch& scratch) const override {
    auto sample = Decorator::read(index, scratch);
    sample.target = relabel(sample.target, scratch);
    return sample;
  }
  data::Target target(int64_t index, data::Scratch& scratch) const override { return relabel(Decorator::target(index, scratch), scratch); }

 private:
  data::Target relabel(const data::Target& target, data::Scratch& scratch) const {
    if (!info_.is_multi_label) return {.label = relabel(target.label)};
    scratch.targets = relabel(target.values);
    return {.values = scratch.targets};
  }
  // An invalid label, in a damaged file, stays invalid.
  int64_t relabel(int64_t label) const {
    return label >= 0 && label < static_cast<int64_t>(labels_.size()) ? labels_[static_cast<size_t>(label)] : -1;
  }
  // The values for each class that the network was trained on; 0 for classes that the data lacks.
  std::vector<double> relabel(std::span<const double> of_classes) const {
    std::vector<double> values(of_classes.empty() ? 0 : static_cast<size_t>(info_.num_classes));
    for (size_t i = 0; i < of_classes.size(); ++i) values[static_cast<size_t>(labels_[i])] = of_classes[i];
    return values;
  }

  data::DatasetInfo info_;
  std::vector<int64_t> labels_;
};

// The index of each name in `trained`.
std::vector<int64_t> labels_of(const std::vector<std::string>& names, const std::vector<std::string>& trained, const std::string& file) {
  std::vector<int64_t> labels;
  for (const auto& name : names) {
    const auto found = std::ranges::find(trained, name);
    if (found == trained.end()) {
      throw UsageError(fmt::format(
          "{}: the data to evaluate has the class \"{}\", on which this network was not trained; rename that class, or remove its images",
          file, name));
    }
    labels.push_back(found - trained.begin());
  }
  return labels;
}

DatasetFactory with_classes_of(const network::NetworkFile& file, DatasetFactory dataset) {
  const auto trained = file.class_names();
  const auto info = dataset.info;
  if (trained.empty() || info.class_names.empty() || info.class_names == trained) return dataset;
  if (info.has_masks) {
    throw UsageError(
        fmt::format("{}: the masks to evaluate have other classes than the training masks ({}); use the same classes in the same order",
                    file.path(), fmt::join(trained, ", ")));
  }
  dataset.info.class_names = trained;
  dataset.info.num_classes = static_cast<int64_t>(trained.size());
  dataset.open = [open = dataset.open, info = dataset.info, labels = labels_of(info.class_names, trained, file.path())](
                     Split split, Logger& logger) { return std::make_unique<Relabelled>(open(split, logger), info, labels); };
  return dataset;
}

DatasetFactory make_dataset(const config::Experiment& experiment, const network::NetworkFile& file) {
  return with_classes_of(file, samples::dataset_of(experiment));
}

// Refuses a folder whose subfolders are splits instead of classes, unless it has a subfolder train, which makes it a whole data set.
void refuse_split_folders(const fs::path& folder, const std::vector<std::string>& trained) {
  for (const char* name : {"val", "valid", "validation", "test"}) {
    const bool is_class = std::ranges::find(trained, name) != trained.end();
    if (is_class || fs::is_directory(folder / "train") || !fs::is_directory(folder / name)) continue;
    throw UsageError(fmt::format("--data {0} contains the folder {1}, which is not a class; to evaluate that folder, use --data {2}",
                                 folder.string(), name, (folder / name).string()));
  }
}

// Sets `options` so that files are read as in training.
void read_files_as_trained(datasets::ImageFileOptions& options, const network::NetworkFile& file) {
  if (!file.has_experiment()) return;
  const auto decoding = inference::read_decoding(state::View(file.tree(), file.path()));
  const bool is_grey = decoding.mode == data::ImageMode::kRgb && !file.sample_shape().empty() && file.sample_shape().front() == 1;
  options.mode = is_grey ? data::ImageMode::kGrey : decoding.mode;
  options.is_turned_upright = decoding.is_turned_upright;
}

// The data set for --data. `task`: the name of the experiment's task.
ComponentConfig component_of(const fs::path& data, const ComponentConfig& of_training, const std::string& task,
                             const network::NetworkFile& file) {
  const auto& registry = datasets::dataset_registry();
  // The path becomes a value in the experiment, whose text must be UTF-8.
  if (!is_utf8(data.string())) throw UsageError(fmt::format("--data {}: the name is not valid UTF-8; rename it", data.string()));
  if (!fs::exists(data)) throw UsageError(fmt::format("--data {}: there is no such file or folder; correct the path", data.string()));
  if (!fs::is_directory(data)) {
    auto component = registry.configure("csv");
    auto& options = dynamic_cast<datasets::CsvOptions&>(*component.options);
    options.train = data.string();
    if (const auto* csv = dynamic_cast<const datasets::CsvOptions*>(of_training.options.get())) {
      options.root = csv->root;
      options.columns = csv->columns;
      options.separator = csv->separator;
      const auto columns = datasets::first_line_of(data);
      if (std::ranges::find(columns, csv->group_column) != columns.end()) options.group_column = csv->group_column;
    }
    read_files_as_trained(options.files, file);
    if (options.columns.empty()) options.columns = file.target_names();
    options.targets = task == "multi_label"  ? datasets::CsvTargets::kClasses
                      : task == "regression" ? datasets::CsvTargets::kNumbers
                                             : datasets::CsvTargets::kClass;
    return component;
  }
  if (fs::exists(data / datasets::kPackedTrain / "data.mdb")) {
    auto component = registry.configure("lmdb");
    dynamic_cast<datasets::LmdbOptions&>(*component.options).root = data.string();
    return component;
  }
  if (fs::exists(data / "data.mdb")) {
    throw UsageError(
        fmt::format("--data {}: this is one part of a packed data set; give its parent folder, and --split train or --split validation",
                    data.string()));
  }
  refuse_split_folders(data, file.class_names());
  auto component = registry.configure("image_folder");
  auto& options = dynamic_cast<datasets::ImageFolderOptions&>(*component.options);
  options.root = data.string();
  read_files_as_trained(options.files, file);
  return component;
}

using Samples = KeyFacts::Samples;

// The file or folder that defines the samples of a split; empty: the data set has none.
fs::path place_of(const config::Experiment& experiment, Split split) {
  const auto tree = config::resolved_tree(experiment, recipe::all_registries());
  for (const auto samples : {split == Split::kTrain ? Samples::kTraining : Samples::kValidation, Samples::kAll}) {
    for (const auto& [name, position, value] : tree.find("dataset")->value.members) {
      if (value.facts.samples == samples && !value.text.empty()) return value.text;
    }
  }
  return "";
}

bool are_same_data(const config::Experiment& a, const config::Experiment& b) {
  const auto is_same_place = [&](Split split) {
    const auto place_a = place_of(a, split);
    const auto place_b = place_of(b, split);
    std::error_code missing;
    return place_a == place_b || fs::equivalent(place_a, place_b, missing);
  };
  return a.dataset.component.name == b.dataset.component.name && is_same_place(Split::kTrain) && is_same_place(Split::kValidation);
}

// The experiment of the training run, without the values that registries.complete would derive from its data set.
config::Experiment experiment_of_training(const network::NetworkFile& file, const EvaluationRequest& request) {
  const auto registries = recipe::registries_without_check();
  try {
    if (file.has_experiment()) return file.load_experiment({}, registries);
  } catch (const UsageError&) {
    // The experiment may be from another version of this program, or need a plug-in; request.config replaces it.
    if (request.config.empty()) throw;
  }
  return file.load_experiment({}, registries, request.config);
}

// To be called before the experiment is completed from its data set.
void choose_data(config::Experiment& experiment, const network::NetworkFile& file, const EvaluationRequest& request) {
  auto& section = experiment.dataset;
  if (!request.data.empty()) {
    for (const auto& [key, text, facts] : config::values_of(experiment, recipe::all_registries())) {
      if (facts.samples == Samples::kNone || !experiment.is_on_command_line(key)) continue;
      throw UsageError(fmt::format("{}: --data {} replaces this key; give only one of the two", key, request.data.string()));
    }
    section.component = component_of(request.data, section.component, experiment.task.component.name, file);
    section.validation_split.value = 0;
    section.split.reset();
    return;
  }
  if (section.validation_split.value && experiment.is_on_command_line("dataset.validation_split")) return;
  if (are_same_data(experiment, experiment_of_training(file, request))) return;
  section.validation_split.value = 0;
  if (!experiment.is_on_command_line("dataset.split")) section.split.reset();
}

}  // namespace

config::Experiment load_evaluation(const network::NetworkFile& file, const EvaluationRequest& request, int rank,
                                   const config::Registries& registries) {
  const auto make = [&](const config::Experiment& experiment) { return make_dataset(experiment, file); };
  const auto has_data = [rank](const config::Experiment& experiment) {
    return rank == 0 || experiment.dataset.distribution == engine::Distribution::kLocal;
  };
  auto of_evaluation = registries;
  of_evaluation.complete = [&](config::Experiment experiment, const config::Findings& findings) {
    if (request.tta) experiment.validation.tta = *request.tta;
    if (!has_data(experiment)) return experiment;
    if (findings.are_consistent({"dataset"})) choose_data(experiment, file, request);
    return recipe::complete(experiment, findings, make);
  };
  of_evaluation.check = [&](const config::Experiment& experiment, config::Findings& findings) {
    if (has_data(experiment)) recipe::check_components(experiment, findings, make);
  };
  return file.load_experiment(request.overrides, of_evaluation, request.config);
}

EvaluationData find_evaluation_data(const config::Experiment& experiment, const network::NetworkFile& file,
                                    const EvaluationRequest& request) {
  EvaluationData data{.dataset = make_dataset(experiment, file), .split = request.split.value_or(Split::kValidation)};
  const auto training = experiment_of_training(file, request);
  const bool is_other = !request.data.empty() || !are_same_data(experiment, training);
  const bool has_validation = data.dataset.has_validation || !data.dataset.missing.empty();
  const bool holds_out = experiment.dataset.holds_out();
  if (data.split == Split::kTest && !(experiment.dataset.split && experiment.dataset.split->test > 0)) {
    throw UsageError(is_other && training.dataset.split
                         ? "--split test: this is not the data set of the training run, so it has no test part; set dataset.split on the "
                           "command line to the value of the training run"
                         : "--split test: the training run held out no test images; set dataset.split.test before training");
  }
  if (!request.data.empty() && !request.split && has_validation && data.dataset.missing.empty()) {
    throw UsageError(fmt::format("--data {} has both training and validation images; choose --split train or --split validation",
                                 request.data.string()));
  }
  data.is_all = is_other && !holds_out && !has_validation;
  if (data.is_all) data.split = Split::kTrain;
  constexpr std::array kNames = {"training", "validation", "test"};
  const auto place = place_of(experiment, holds_out ? Split::kTrain : data.split).string();
  data.name = data.is_all ? place : fmt::format("the {} set{}", kNames.at(static_cast<size_t>(data.split)), is_other ? " of " + place : "");
  const auto held_out_in_training = training.dataset.validation_split.value;
  if (data.is_all && request.data.empty() && (training.dataset.split || held_out_in_training.value_or(1) > 0)) {
    data.note = fmt::format(
        "{} is not the data set of the training run, so all of its images are evaluated; to evaluate only the part that training on it "
        "would hold out, {}",
        place,
        training.dataset.split ? "set dataset.split on the command line to the value of the training run"
                               : fmt::format("set dataset.validation_split={}", held_out_in_training.value_or(0.1)));
  }
  return data;
}

}  // namespace trainer::evaluation
