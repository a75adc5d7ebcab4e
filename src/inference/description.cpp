#include "inference/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "config/problems.h"
#include "config/reader.h"
#include "config/yaml.h"
#include "data/pipeline.h"
#include "data/transforms/transform.h"
#include "models/model_registry.h"
#include "trainer/error.h"
#include "trainer/keys.h"
#include "trainer/model.h"

namespace trainer::inference {
namespace {

// The parts of an experiment that predictions need, with the keys of config::Experiment.
struct Settings {
  config::ModelSection model;
  std::vector<ComponentConfig> transforms;
  config::RuntimeSection runtime;
  config::AmpSection amp;
  engine::ValidationOptions validation;

  void describe(KeyTable& keys) {
    keys.add_section(
        "model", [this](KeyTable& section) { model.describe(section, models::model_registry()); }, "");
    keys.set_facts("model", {.is_for_predictions = true});
    keys.add_section(
        "dataset",
        [this](KeyTable& section) {
          section.add_components("validation_transforms", transforms, data::transform_registry(), "");
          section.set_facts("validation_transforms", {.is_for_predictions = true});
        },
        "");
    keys.add_section(
        "runtime", [this](KeyTable& section) { runtime.describe(section); }, "");
    keys.add_section(
        "amp", [this](KeyTable& section) { amp.describe(section); }, "");
    keys.add_section(
        "validation", [this](KeyTable& section) { trainer::describe(section, validation); }, "");
  }
};

}  // namespace

std::vector<std::string> read_names(const state::Tree& file, const std::string& source, const char* key) {
  std::vector<std::string> names;
  const auto stored = state::View(file, source).find(key);
  if (!stored) return names;
  for (const auto& name : stored->elements()) {
    // Functions in C could return only a part of it.
    if (name.text().find('\0') != std::string::npos) name.fail("contains a null byte; give an intact checkpoint");
    names.push_back(name.text());
  }
  return names;
}

std::vector<int64_t> read_sample_shape(const state::Tree& file, const std::string& source) {
  std::vector<int64_t> shape;
  const auto stored = state::View(file, source).find("sample_shape");
  if (!stored) return shape;
  int64_t num_values = 1;
  for (const auto& length : stored->elements()) {
    shape.push_back(length.integer());
    const bool is_any = shape.back() == data::kAnySize && shape.size() > 1;
    if (!is_any && (shape.back() < 1 || shape.back() > data::kMostImageValues / num_values)) {
      stored->fail(fmt::format("[{}, ...] is not the shape of a sample; give an intact checkpoint", fmt::join(shape, ", ")));
    }
    if (!is_any) num_values *= shape.back();
  }
  return shape;
}

data::ImageDecoding read_decoding(const state::View& file) {
  data::ImageDecoding decoding;
  const auto stored = file.find("image_files");
  if (!stored) return decoding;
  try {
    decoding.mode = data::image_mode_of(stored->at("mode").text());
  } catch (const std::runtime_error& reason) {
    stored->fail(reason.what());
  }
  decoding.is_turned_upright = stored->at("is_turned_upright").flag();
  if (const auto channels = stored->at("channels").integer(); channels != 0) decoding.channels = static_cast<int>(channels);
  decoding.maximum = static_cast<float>(stored->at("maximum").number());
  return decoding;
}

state::Dict tree_of(const data::ImageDecoding& decoding) {
  state::Dict tree;
  tree.add("mode", std::string(data::name_of(decoding.mode)));
  tree.add("is_turned_upright", decoding.is_turned_upright);
  tree.add("channels", decoding.channels.value_or(0));
  tree.add("maximum", static_cast<double>(decoding.maximum));
  return tree;
}

void set_targets(data::DatasetInfo& samples, const std::string& task, int64_t num_outputs) {
  if (task == "multi_label") samples.is_multi_label = true;
  if (task == "regression") samples.num_classes = 0;
  samples.set_num_outputs(num_outputs);
}

void check_format_version(const state::View& file) {
  const auto version = file.find("format_version");
  if (!version || version->integer() == kFormatVersion) return;
  const auto writer = file.find("trainer_version");
  version->fail(fmt::format("is {}, but this program reads only {}; use the version of the program that wrote the checkpoint{}",
                            version->integer(), kFormatVersion, writer ? ", " + writer->text() : ""));
}

double read_finite(const state::View& value, double greater_than) {
  const auto number = value.number();
  if (std::isfinite(number) && number > greater_than) return number;
  value.fail(fmt::format("is {}, but must be a finite number{}; give an intact checkpoint", number,
                         std::isfinite(greater_than) ? fmt::format(" greater than {}", greater_than) : ""));
}

std::optional<data::TargetSummary> read_target_summary(const state::View& file) {
  const auto stored = file.find("target_summary");
  if (!stored) return std::nullopt;
  data::TargetSummary summary{.num_samples = stored->at("num_samples").integer()};
  for (const auto& count : stored->at("class_counts").elements()) summary.class_counts.push_back(count.integer());
  for (const auto& mean : stored->at("mean").elements()) summary.mean.push_back(read_finite(mean));
  for (const auto& deviation : stored->at("deviation").elements()) summary.deviation.push_back(read_finite(deviation, 0));
  return summary;
}

state::Dict tree_of(const data::TargetSummary& summary) {
  const auto list_of = [](const auto& values) { return state::List(values.begin(), values.end()); };
  state::Dict tree;
  tree.add("num_samples", summary.num_samples);
  tree.add("class_counts", list_of(summary.class_counts));
  tree.add("mean", list_of(summary.mean));
  tree.add("deviation", list_of(summary.deviation));
  return tree;
}

device::PlacementOptions placement_options(const config::RuntimeSection& runtime, const config::AmpSection& amp,
                                           std::optional<bool> pin_memory) {
  return {.device = runtime.device,
          .dtype = runtime.dtype,
          .autocast = amp.enabled.value,
          .autocast_dtype = amp.dtype == config::AmpDtype::kFloat16 ? device::AutocastType::kFloat16 : device::AutocastType::kBfloat16,
          .num_threads = runtime.threads.value,
          .channels_last = runtime.channels_last.value,
          .pin_memory = pin_memory,
          .allow_tf32 = runtime.allow_tf32.value,
          .convolution = runtime.convolution,
          .fuse = runtime.fuse,
          .deterministic = runtime.deterministic,
          .cudnn_benchmark = runtime.cudnn_benchmark,
          .cuda_graph = runtime.cuda_graph};
}

Description read_description(const state::Tree& checkpoint, const std::string& source) {
  const state::View file(checkpoint, source);
  if (!file.find("config")) file.fail("it holds weights but no experiment; give a checkpoint written by trainer");
  check_format_version(file);
  const auto tree = config::parse_yaml(file.at("config").text(), source + ": config");
  const auto* task_name = config::find_value(tree, "task.name");
  const std::string task = task_name == nullptr ? "classification" : task_name->text;
  if (task != "classification" && task != "multi_label" && task != "regression") {
    file.fail(fmt::format(
        "its network was trained for the task {}; give a checkpoint of the task classification, multi_label or regression", task));
  }
  if (const auto* plugins = config::find_value(tree, "plugins"); plugins != nullptr && !plugins->items.empty()) {
    file.fail("its experiment uses plug-ins, which this library does not load; predict with `trainer predict --plugin`");
  }
  Settings settings;
  config::Problems problems(config::UnknownKeys::kIgnoreUnlessNeeded);
  config::read_section(
      tree, [&](KeyTable& keys) { settings.describe(keys); }, "", problems);
  problems.throw_if_any();
  Description description{.source = source, .model = settings.model.component};
  if (const auto* dataset = config::find_value(tree, "dataset.name")) description.dataset = dataset->text;
  const auto& model = dynamic_cast<const models::ModelOptions&>(*description.model.options);
  auto& samples = description.samples;
  samples.num_classes = data::kUnknownClasses;
  set_targets(samples, task, model.num_outputs());
  samples.shape = read_sample_shape(checkpoint, source);
  if (samples.shape.empty()) file.fail("it lacks the shape of its samples; predict with `trainer predict`");
  samples.decoding = read_decoding(file);
  samples.class_names = read_names(checkpoint, source, "class_names");
  samples.target_names = read_names(checkpoint, source, "target_names");
  if (static_cast<int64_t>(samples.class_names.size()) != samples.num_classes) samples.class_names.clear();
  samples.is_image = file.find("image_files").has_value();
  description.transforms = std::move(settings.transforms);
  description.tta = settings.validation.tta;
  description.placement = placement_options(settings.runtime, settings.amp);
  return description;
}

}  // namespace trainer::inference
