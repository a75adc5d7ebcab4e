#include "run/network/network_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/store.h"
#include "config/load.h"
#include "data/pipeline.h"
#include "datasets/download.h"
#include "inference/operating_point.h"
#include "inference/predictor.h"
#include "inference/weights_by_name.h"
#include "run/recipe/build.h"
#include "run/recipe/registries.h"
#include "run/samples/open_samples.h"
#include "run/version.h"
#include "train/task/task.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"
#include "trainer/model.h"

namespace trainer::network {
NetworkFile::NetworkFile(const std::filesystem::path& path)
    : path_(checkpoint::checkpoint_of(path).string()), tree_(checkpoint::load(path_)) {
  inference::check_format_version(state::View(tree_, path_));
}

bool NetworkFile::has_experiment() const { return state::View(tree_, path_).find("config").has_value(); }

config::Experiment NetworkFile::own_experiment(const std::vector<std::string>& overrides, const config::Registries& registries) const {
  const state::View file(tree_, path_);
  if (!has_experiment()) {
    throw UsageError(fmt::format(
        "{}: this file holds weights but no experiment; give a checkpoint, or in predict and eval also the network's experiment file "
        "with --config FILE",
        path_));
  }
  const auto source = path_ + ": config";
  try {
    return recipe::load_without_plugins(file.at("config").text(), source, overrides, registries, config::UnknownKeys::kIgnoreUnlessNeeded);
  } catch (const UsageError& error) {
    const auto writer = file.find("trainer_version");
    const bool is_of_the_file = std::string_view(error.what()).find(source + ':') != std::string_view::npos;
    if (!is_of_the_file || !writer || writer->text() == run::trainer_version()) throw;
    throw UsageError(
        fmt::format("{}\nThis checkpoint was written by version {} of trainer; use that version, or in predict and eval give an experiment "
                    "file with --config.",
                    error.what(), writer->text()));
  }
}

config::Experiment NetworkFile::load_experiment(const std::vector<std::string>& overrides, const config::Registries& registries,
                                                const std::filesystem::path& config) const {
  auto experiment = config.empty() ? own_experiment(overrides, registries) : config::load(config, overrides, registries);
  experiment.model.init_from.clear();
  experiment.model.weights.clear();
  // A network trained with these on GPUs can be used on a machine without any.
  experiment.runtime.cuda_graph = device::CudaGraphChoice::kOff;
  if (experiment.distributed.backend == distributed::BackendChoice::kNccl)
    experiment.distributed.backend = distributed::BackendChoice::kAuto;
  return experiment;
}

std::vector<std::string> NetworkFile::class_names() const { return inference::read_names(tree_, path_, "class_names"); }

std::vector<std::string> NetworkFile::target_names() const { return inference::read_names(tree_, path_, "target_names"); }

std::vector<int64_t> NetworkFile::sample_shape() const { return inference::read_sample_shape(tree_, path_); }

std::optional<engine::Progress> NetworkFile::progress() const {
  const state::View file(tree_, path_);
  if (!file.find("step") || !file.find("epoch") || !file.find("samples_in_epoch")) return std::nullopt;
  return engine::Progress{
      .epoch = file.at("epoch").integer(), .step = file.at("step").integer(), .samples_in_epoch = file.at("samples_in_epoch").integer()};
}

void NetworkFile::load_weights(bool averaged, torch::nn::Module& model) const { inference::load_weights(tree_, path_, averaged, model); }

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Node& node) {
  using Kind = Node::Kind;
  Json json;
  if (node.kind == Kind::kList) {
    json = Json::array();
    for (const auto& item : node.items) json.push_back(to_json(item));
  } else if (node.kind == Kind::kMap) {
    json = Json::object();
    for (const auto& member : node.members) json[member.name] = to_json(member.value);
  } else if (node.kind == Kind::kScalar) {
    // Numbers and booleans are written as in JSON; everything else is text.
    json = node.quoted ? Json(Json::value_t::discarded) : Json::parse(node.text, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) json = node.text;
  }
  return json;
}

}  // namespace

data::DatasetInfo samples_of(const config::Experiment& experiment, const NetworkFile& file) {
  auto info = samples::dataset_of(experiment).info;
  if (const auto names = file.class_names(); !names.empty()) info.class_names = names;
  if (const auto names = file.target_names(); !names.empty()) info.target_names = names;
  if (const auto shape = file.sample_shape(); !shape.empty()) info.shape = shape;
  if (file.has_experiment()) info.decoding = inference::read_decoding(state::View(file.tree(), file.path()));
  const auto& model = dynamic_cast<const models::ModelOptions&>(*experiment.model.component.options);
  // If the files of a data set are missing, its targets are unknown, so they are taken from the network.
  inference::set_targets(info, experiment.task.component.name, model.num_outputs());
  if (static_cast<int64_t>(info.class_names.size()) != info.num_classes) info.class_names.clear();
  return info;
}

void require_target_summary(const config::Experiment& experiment, const NetworkFile& file) {
  const auto* options = dynamic_cast<const task::RegressionOptions*>(experiment.task.component.options.get());
  // A checkpoint, which has an experiment, has the summary too.
  if (options == nullptr || !options->normalize_targets || file.has_experiment()) return;
  throw UsageError(
      fmt::format("{}: this file lacks the mean and standard deviation of the targets, which are needed to interpret the network's "
                  "outputs; give a checkpoint, or, if the network did not learn normalised targets, set task.normalize_targets=false",
                  file.path()));
}

inference::Description description_of(const config::Experiment& experiment, const NetworkFile& file) {
  require_target_summary(experiment, file);
  return {.source = file.path(),
          .model = experiment.model.component,
          .dataset = experiment.dataset.component.name,
          .samples = samples_of(experiment, file),
          .transforms = experiment.dataset.validation_transforms,
          .tta = experiment.validation.tta,
          .placement = recipe::placement_options(experiment)};
}

std::string describe_network(const config::Experiment& experiment, const NetworkFile& file, bool averaged,
                             const std::optional<exported::Interface>& interface) {
  const auto info = samples_of(experiment, file);
  const auto tree = config::resolved_tree(experiment, recipe::all_registries());
  Json description = {
      {"trainer", run::trainer_version()},
      {"checkpoint_sha256", datasets::digest_of(file.path(), "SHA256")},
      {"model", experiment.model.component.name},
      {"class_names", info.class_names},
      {"input_shape", data::Pipeline(experiment.dataset.validation_transforms, info, {}).output_shape()},
      {"transforms", to_json(tree.find("dataset")->value.find("validation_transforms")->value)},
  };
  if (inference::takes_image_files(info)) {
    const auto decoding = inference::input_of_image_files(info, {}).samples.decoding;
    const bool is_grey16 = decoding.mode == data::ImageMode::kGrey16;
    const auto maximum = !decoding.has_float_pixels() ? 255.0F : is_grey16 ? 65535.0F : decoding.maximum;
    auto& files = description["image_files"];
    files = {{"mode", data::name_of(decoding.mode)},
             {"is_turned_upright", decoding.is_turned_upright},
             {"divided_by", maximum > 0 ? maximum : 1}};
    if (info.shape[1] != data::kAnySize) files["resized_to"] = {info.shape[1], info.shape[2]};
  }
  const auto point = inference::read_operating_point(file.tree(), file.path(), averaged, info);
  if (point.kind == inference::AnswerKind::kClasses) description["thresholds"] = point.thresholds;
  if (point.kind == inference::AnswerKind::kNumbers) {
    description.erase("class_names");
    description["target_names"] = info.target_names;
    if (!point.mean.empty()) {
      description["target_mean"] = point.mean;
      description["target_deviation"] = point.deviation;
    }
  }
  if (point.kind == inference::AnswerKind::kClass && point != inference::OperatingPoint()) {
    auto& json = description["operating_point"];
    json = {{"temperature", point.temperature}, {"reject_below", point.reject_below}};
    if (point.threshold) json["threshold"] = {{"label", point.threshold->label}, {"probability", point.threshold->probability}};
  }
  if (interface) {
    description["input"] = interface->preprocessing ? "images" : "tensor";
    auto& outputs = description["outputs"] = Json::array();
    if (interface->outputs != exported::Outputs::kAnswers) outputs.push_back("logits");
    if (interface->outputs != exported::Outputs::kLogits) outputs.push_back(exported::name_of_answers(*interface));
  }
  return description.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trainer::network
