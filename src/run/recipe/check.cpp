#include "run/recipe/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/text.h"
#include "base/url.h"
#include "config/reader.h"
#include "data/batch_transforms/batch_mixer.h"
#include "data/pipeline.h"
#include "data/samplers/sampler.h"
#include "data/transforms/transform.h"
#include "datasets/dataset_registry.h"
#include "device/libtorch_settings.h"
#include "inference/description.h"
#include "inference/place_model.h"
#include "models/model_registry.h"
#include "models/published_weights.h"
#include "run/weights.h"
#include "train/optim/lr_scheduler.h"
#include "train/optim/optimizer.h"
#include "train/task/task.h"
#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::recipe {
namespace {

void check_task(const config::Experiment& experiment, const data::DatasetInfo& info, config::Findings& findings) {
  if (!findings.are_readable({"task", "loss", "checkpoint"})) return;
  const auto make_task = [&]() -> std::unique_ptr<task::Task> {
    try {
      return task::task_registry().make(experiment.task.component, nn::loss_registry().make(experiment.loss.component));
    } catch (const UsageError& error) {
      findings.refuse("task.name", error.what());
      return nullptr;
    }
  };
  const auto task = make_task();
  if (task == nullptr) return;
  const auto& section = experiment.checkpoint;
  const auto mismatches = task->mismatches({.loss = experiment.loss.component.name,
                                            .dataset = experiment.dataset.component.name,
                                            .num_classes = info.num_classes,
                                            .has_masks = info.has_masks,
                                            .is_multi_label = info.is_multi_label,
                                            .monitor = section.best.metric});
  for (const auto& mismatch : mismatches) findings.refuse(mismatch.key, mismatch.text);
  const auto refusal = info.num_classes > 0 ? task->refusal_of_classes(info.num_classes) : std::nullopt;
  if (refusal) findings.refuse(refusal->key, refusal->text);
  const auto measured = task->metrics().validation;
  const auto is_monitored = [&](const reporting::MetricInfo& metric) { return section.best.metric == "validation/" + metric.name; };
  if (section.best.metric != "auto" && std::ranges::none_of(measured, is_monitored)) {
    findings.refuse("checkpoint.monitor", fmt::format("the task {} does not measure {}; choose validation/{}",
                                                      experiment.task.component.name, section.best.metric, task->default_metric()));
  }
  const auto monitored = section.best.metric == "auto" ? "validation/" + task->default_metric() : section.best.metric;
  for (const auto& metric : measured) {
    if (monitored != "validation/" + metric.name || section.best.mode == engine::MonitorMode::kAuto) continue;
    const bool keeps_highest = section.best.mode == engine::MonitorMode::kMax;
    if (keeps_highest == metric.higher_is_better) continue;
    findings.warn("checkpoint.mode",
                  fmt::format("{} keeps the checkpoint with the {} {} as the best one, but a {} value is better; remove mode",
                              keeps_highest ? "max" : "min", keeps_highest ? "highest" : "lowest", monitored,
                              metric.higher_is_better ? "higher" : "lower"));
  }
}

void check_outputs(const config::Experiment& experiment, const models::ModelOptions& model, const data::DatasetInfo& info,
                   config::Findings& findings) {
  if (model.num_outputs() == info.num_outputs()) return;
  findings.refuse("model." + model.outputs_key(),
                  fmt::format("{} has {}, but {} has {}", experiment.model.component.name, counted(model.num_outputs(), "output"),
                              experiment.dataset.component.name, outputs_text(info)));
}

// The shape of samples after `transforms`; nullopt if the transforms cannot be applied.
std::optional<std::vector<int64_t>> shape_after(const std::vector<ComponentConfig>& transforms, const data::DatasetInfo& info) {
  const bool can_be_applied = std::ranges::all_of(data::check_transforms(transforms, info), &data::TransformFinding::is_warning);
  return can_be_applied ? std::optional(data::Pipeline(transforms, info, {}).output_shape()) : std::nullopt;
}

std::optional<std::vector<int64_t>> check_transforms(const std::string& key, const std::vector<ComponentConfig>& transforms,
                                                     const data::DatasetInfo& info, config::Findings& findings) {
  for (const auto& finding : data::check_transforms(transforms, info)) {
    const auto path = finding.index ? fmt::format("{}[{}]", key, *finding.index) : key;
    if (finding.is_warning) {
      findings.warn(path, finding.text);
    } else {
      findings.refuse(path, finding.text);
    }
  }
  return shape_after(transforms, info);
}

// `shape`: of the samples after the transforms at `key`. Returns false if the network does not accept this shape.
bool check_inputs(const config::Experiment& experiment, const models::ModelOptions& model, const std::vector<int64_t>& shape,
                  const std::string& key, config::Findings& findings) {
  const auto wanted = model.input_shape();
  if (inference::takes_shape(wanted, shape)) return true;
  findings.refuse("model.name",
                  fmt::format("{} takes samples of shape {}, but {} has {} after {}; change these transforms, or choose another network",
                              experiment.model.component.name, inference::input_shape_text(wanted), experiment.dataset.component.name,
                              fmt::join(shape, "x"), key));
  return false;
}

// `shape`: of the training images.
void check_size_schedule(const config::Experiment& experiment, const models::ModelOptions& model, const std::vector<int64_t>& shape,
                         const data::DatasetInfo& info, config::Findings& findings) {
  const auto& schedule = experiment.dataset.size_schedule;
  if (schedule.empty() || !findings.are_readable({"training"})) return;
  try {
    engine::check_size_schedule({.epochs = experiment.training.epochs, .size_schedule = schedule}, shape, info.has_masks);
  } catch (const OptionError& error) {
    findings.refuse("dataset.size_schedule", error.problem());
    return;
  }
  check_inputs(experiment, model, engine::scaled_shape(shape, schedule.front().size), "dataset.size_schedule", findings);
}

// Describes targets that are not class labels.
const char* targets_text(const data::DatasetInfo& info) {
  return info.has_masks ? "masks" : info.is_multi_label ? "lists of classes" : "numbers";
}

void check_sampler(const config::Experiment& experiment, const data::DatasetInfo& info, config::Findings& findings) {
  if (!findings.are_readable({"dataloader"}) || info.has_labels()) return;
  const auto& sampler = experiment.dataloader.sampler;
  if (!dynamic_cast<const data::SamplerOptions&>(*sampler.options).needs_classes()) return;
  findings.refuse("dataloader.sampler.name",
                  fmt::format("{} needs one class per sample, but the targets of {} are {}; choose another sampler", sampler.name,
                              experiment.dataset.component.name, targets_text(info)));
}

void check_views(const config::Experiment& experiment, const data::DatasetInfo& info, config::Findings& findings) {
  const auto tta = experiment.validation.tta;
  const bool is_possible = info.is_image && !info.has_masks;
  if (!findings.are_readable({"validation"}) || tta == task::TestTimeAugmentation::kNone || is_possible) return;
  findings.refuse("validation.tta", fmt::format("{} needs images{}, but {} has {}; set validation.tta: none",
                                                spelling_of(tta, config::kTtaChoices), info.has_masks ? " with one target each" : "",
                                                experiment.dataset.component.name, info.has_masks ? "masks" : "none"));
}

void check_batch_transforms(const config::Experiment& experiment, const data::DatasetInfo& info, config::Findings& findings) {
  const auto& transforms = experiment.dataset.batch_transforms;
  const auto& dataset = experiment.dataset.component.name;
  for (size_t i = 0; i < transforms.size(); ++i) {
    const auto& name = transforms[i].name;
    const auto refuse = [&](const std::string& text) { findings.refuse(fmt::format("dataset.batch_transforms[{}]", i), text); };
    if (!info.has_labels()) {
      refuse(fmt::format("{} mixes class labels, but the targets of {} are {}; remove it", name, dataset, targets_text(info)));
    }
    if (info.shape.size() != 3 && data::batch_transform_registry().make(transforms[i])->needs_images()) {
      refuse(fmt::format("{} needs samples with channels, height and width, but those of {} have the shape {}; remove it", name, dataset,
                         fmt::join(info.shape, "x")));
    }
  }
}

void check_cached_features(const config::Experiment& experiment, const data::DatasetInfo& info, config::Findings& findings) {
  if (!findings.are_readable({"training", "validation"}) || !experiment.training.cache_features) return;
  const auto& section = experiment.dataset;
  const auto refuse_if = [&](bool is_set, const std::string& key, const std::string& text) {
    if (is_set) findings.refuse(key, text + ", or set training.cache_features: false");
  };
  for (size_t i = 0; i < section.train_transforms.size(); ++i) {
    const auto& transform = section.train_transforms[i];
    refuse_if(data::is_random(transform), fmt::format("dataset.train_transforms[{}]", i),
              transform.name + " makes a different image in each epoch, so features cannot be cached; remove it");
  }
  refuse_if(!section.batch_transforms.empty(), "dataset.batch_transforms",
            "batch transforms mix images, but only features are cached; remove them");
  refuse_if(section.distribution != engine::Distribution::kLocal, "dataset.distribution",
            "features can be cached only if each process reads its own samples; set local");
  refuse_if(section.on_error == config::OnError::kSkip, "dataset.on_error", "an image that cannot be read has no features; set fail");
  refuse_if(experiment.validation.tta != task::TestTimeAugmentation::kNone, "validation.tta",
            "test-time augmentation needs the images, but only their features are cached; set none");
  refuse_if(!section.size_schedule.empty(), "dataset.size_schedule", "cached features are those of images of one size; remove this key");
  if (info.has_masks) findings.refuse("training.cache_features", "needs a target for each image instead of a mask; remove this key");
}

void check_optimizer(const config::Experiment& experiment, config::Findings& findings) {
  if (!findings.are_readable({"optimizer", "training"})) return;
  const auto& name = experiment.optimizer.component.name;
  const auto num_micro_steps = experiment.training.accumulation_steps;
  const auto optimizer = optim::optimizer_registry().make(experiment.optimizer.component, {});
  if (!optimizer->needs_second_pass() || num_micro_steps == 1) return;
  findings.refuse("optimizer.name", fmt::format("{} processes each batch twice, so it cannot accumulate {} micro-steps; set "
                                                "training.accumulation_steps: 1",
                                                name, num_micro_steps));
}

// Reports a warm-up for a schedule that has its own, reduce_on_plateau without validations, and milestones after the end of training.
void check_lr_schedule(const config::Experiment& experiment, config::Findings& findings) {
  const auto& section = experiment.lr_scheduler;
  if (!findings.are_readable({"lr_scheduler"})) return;
  const auto traits = optim::traits_of(section.component);
  const char* key = section.warmup.epochs > 0 ? "warmup_epochs" : "warmup_steps";
  if (traits.has_own_warmup && (section.warmup.epochs > 0 || section.warmup.steps > 0)) {
    findings.refuse(fmt::format("lr_scheduler.{}", key), fmt::format("{} has its own warm-up; remove this key", section.component.name));
  }
  if (findings.are_readable({"validation"}) && traits.needs_validations && experiment.validation.is_off()) {
    findings.refuse("lr_scheduler.name", fmt::format("{} needs validations, but validation.every_epochs and validation.every_steps are "
                                                     "null; set one of them, or choose another schedule",
                                                     section.component.name));
  }
  const auto& epochs = experiment.training.epochs;
  if (findings.are_readable({"training"}) && epochs && traits.last_drop >= static_cast<double>(*epochs)) {
    findings.warn("lr_scheduler.milestones", fmt::format("epoch {} is not reached in {} of training; remove it, or raise training.epochs",
                                                         traits.last_drop, counted(*epochs, "epoch")));
  }
}

// The fraction of the training set that is held out if there is no validation set.
constexpr double kHeldOut = 0.1;

std::vector<ComponentConfig> read_transforms(const std::string& yaml, const std::string& dataset) {
  return config::read_components(yaml, "the default transforms of " + dataset, data::transform_registry());
}

data::DefaultTransforms transforms_of(const run::WeightsImages& images) {
  const auto normalize = fmt::format("normalize: {{mean: {}, std: {}}}", images.mean, images.std);
  return {.train = fmt::format("[random_resized_crop: {{size: {}, interpolation: {}}}, random_horizontal_flip, {}]", images.crop,
                               images.interpolation, normalize),
          .validation = fmt::format("[resize: {{size: {}, interpolation: {}}}, center_crop: {{size: {}}}, {}]", images.resize,
                                    images.interpolation, images.crop, normalize)};
}

void check_weights(const config::Experiment& experiment, config::Findings& findings) {
  const auto& section = experiment.model;
  if (!findings.are_readable({"model"}) || section.weights.empty()) return;
  const auto& mirror = section.weights_mirror;
  if (!mirror.empty() && !run::is_address(mirror)) {
    findings.refuse("model.weights_mirror", fmt::format("\"{}\" is not a URL; write https://…, http://… or file:///…", mirror));
  }
  if (run::is_address(section.weights)) {
    const auto problem = run::problem_of_address(section.weights);
    if (!problem.empty()) findings.refuse("model.weights", problem);
    if (!mirror.empty()) findings.refuse("model.weights_mirror", "has no effect if model.weights is a URL; remove it");
    return;
  }
  const auto& model = section.component.name;
  if (run::is_folder(section.weights)) {
    try {
      run::read_weights_folder(section.weights, model);
    } catch (const Error& error) {
      findings.refuse("model.weights", error.what());
    }
    if (!mirror.empty()) findings.refuse("model.weights_mirror", "has no effect if model.weights is a folder; remove it");
    return;
  }
  if (models::find_published_weights(model, section.weights) != nullptr) return;
  const auto names = models::published_weights_of(model);
  findings.refuse("model.weights",
                  names.empty()
                      ? fmt::format("there are no published weights of {}; `trainer weights list` shows the networks that have some, and "
                                    "model.init_from reads a file",
                                    model)
                      : fmt::format("\"{}\" is neither one of {} nor the URL of a file (https://… or file:///…) nor the path of a folder "
                                    "(./…); model.init_from "
                                    "reads a file by its path",
                                    section.weights, join(names, ", ")));
}

void check_event_command(const config::Experiment& experiment, config::Findings& findings) {
  if (!std::ranges::any_of(experiment.logging.command, lacks_secrets)) return;
  findings.warn("logging.command",
                "in its URL, *** stands for a user name, password or query, which files of runs do not contain; write them again");
}

void complete_dataset(config::Experiment& experiment, const data::DatasetFactory& factory, const config::Findings& findings) {
  auto& section = experiment.dataset;
  auto images = run::images_of_weights(experiment.model.component.name, experiment.model.weights);
  const auto* model = dynamic_cast<const models::ModelOptions*>(experiment.model.component.options.get());
  if (images && model != nullptr && model->input_shape().back() > 0) {
    const auto size = model->input_shape().back();
    images->resize = images->resize * size / images->crop;
    images->crop = size;
  }
  const bool takes_transforms_of_weights =
      images && factory.info.is_image && factory.info.shape.front() == 3 && !factory.info.decoding.has_float_pixels();
  const auto defaults = takes_transforms_of_weights ? transforms_of(*images) : factory.default_transforms;
  const auto& name = section.component.name;
  if (!findings.is_given("dataset.validation_transforms")) section.validation_transforms = read_transforms(defaults.validation, name);
  if (!findings.is_given("dataset.train_transforms")) {
    section.train_transforms = experiment.training.cache_features ? section.validation_transforms : read_transforms(defaults.train, name);
  }
  const bool is_known = factory.missing.empty();
  if (!section.validation_split.value && (is_known || section.split)) {
    const bool needs_none = factory.has_validation || section.split || experiment.validation.is_off();
    section.validation_split.value = needs_none ? 0 : kHeldOut;
  }
}

// Chooses the task from the loss and the data if the experiment does not set it.
void complete_task(config::Experiment& experiment, bool is_multi_label, const config::Findings& findings) {
  if (findings.is_given("task.name") || !findings.are_readable({"loss"})) return;
  const auto loss = nn::loss_registry().make(experiment.loss.component);
  const auto name = task::default_task(*loss, is_multi_label);
  if (experiment.task.component.name != name) experiment.task.component = task::task_registry().configure(name);
}

// Null if the section `model` is not consistent.
models::ModelOptions* model_of(const config::Experiment& experiment, const config::Findings& findings) {
  const bool has_model = findings.are_consistent({"model"});
  return has_model ? dynamic_cast<models::ModelOptions*>(experiment.model.component.options.get()) : nullptr;
}

}  // namespace

void assume_channels(const config::Experiment& experiment, const models::ModelOptions* model, data::DatasetInfo& info) {
  if (!info.is_image || info.decoding.num_channels()) return;
  if (model != nullptr) info.shape.front() = model->input_shape().front();
  for (const auto* transforms : {&experiment.dataset.validation_transforms, &experiment.dataset.train_transforms}) {
    const auto found = std::ranges::find(*transforms, "normalize", &ComponentConfig::name);
    if (found == transforms->end()) continue;
    const auto& mean = dynamic_cast<const data::Normalize&>(*found->options).mean;
    if (!mean.empty()) info.shape.front() = static_cast<int64_t>(mean.size());
  }
}

std::string outputs_text(const data::DatasetInfo& info) {
  return info.num_classes > 0 ? counted(info.num_classes, "class", "classes") : counted(info.num_targets, "target");
}

config::Experiment complete(const config::Experiment& given, const config::Findings& findings, const MakeDataset& make) {
  auto experiment = given;
  if (!findings.are_consistent({"dataset"})) {
    complete_task(experiment, /*is_multi_label=*/false, findings);
    return experiment;
  }
  const auto dataset = make(experiment);
  auto info = dataset.info;
  complete_task(experiment, info.is_multi_label, findings);
  complete_dataset(experiment, dataset, findings);
  if (model_of(experiment, findings) == nullptr) return experiment;
  experiment.model.component.options = experiment.model.component.options->clone();
  auto& model = *model_of(experiment, findings);
  assume_channels(experiment, &model, info);
  if (info.shape.size() == 3) model.set_num_channels(info.shape.front());
  if (model.takes_num_outputs() && info.num_outputs() != data::kUnknownClasses) model.set_num_outputs(info.num_outputs());
  const auto shape = shape_after(experiment.dataset.train_transforms, info);
  if (shape && shape->size() == 3 && (*shape)[1] > 0 && (*shape)[2] > 0) model.set_image_size((*shape)[1], (*shape)[2]);
  return experiment;
}

void check_components(const config::Experiment& experiment, config::Findings& findings, const MakeDataset& make) {
  if (findings.are_readable({"runtime"})) {
    const auto refusal = device::refusal_of_allocator(experiment.runtime.cuda_allocator);
    if (!refusal.empty()) findings.refuse("runtime.cuda_allocator", refusal);
  }
  check_weights(experiment, findings);
  check_event_command(experiment, findings);
  check_lr_schedule(experiment, findings);
  check_optimizer(experiment, findings);
  if (!findings.are_consistent({"dataset"})) return;
  const auto dataset = make(experiment);
  auto info = dataset.info;
  const auto* model = model_of(experiment, findings);
  assume_channels(experiment, model, info);
  if (!experiment.dataset.stage_to.empty() && !dataset.locate) {
    findings.refuse("dataset.stage_to",
                    fmt::format("{} has no folder that could be copied; remove this key", experiment.dataset.component.name));
  }
  const bool has_weights = run::images_of_weights(experiment.model.component.name, experiment.model.weights).has_value();
  if (model != nullptr && has_weights && model->input_shape().front() != 3) {
    findings.refuse("model.weights", fmt::format("published weights need images with 3 channels, but those of {} have {}; remove this key",
                                                 experiment.dataset.component.name, model->input_shape().front()));
  }
  if (info.num_outputs() == data::kUnknownClasses && model != nullptr) {
    if (model->takes_num_outputs()) findings.refuse("dataset." + dataset.missing_key, dataset.missing);
    // An unknown number of classes is assumed to fit the network; open_samples() checks this.
    inference::set_targets(info, experiment.task.component.name, model->num_outputs());
  }
  if (!findings.are_consistent({"dataset"})) return;
  if (info.has_masks && (!info.is_image || info.num_classes < 1 || info.num_classes > data::kNoClass)) {
    findings.refuse("dataset.name",
                    fmt::format("the targets of {} are masks, which need images and 1 to {} classes, but it has {}; use another data set",
                                experiment.dataset.component.name, int{data::kNoClass},
                                info.is_image ? counted(info.num_classes, "class", "classes") : "no images"));
    return;
  }
  if (info.num_classes == 1 && !info.is_multi_label)
    findings.warn("dataset.name", fmt::format("{} has only one class, so there is nothing to learn", experiment.dataset.component.name));
  if (experiment.dataset.split && dataset.has_validation && dataset.missing.empty()) {
    findings.warn("dataset.split", fmt::format("the validation images of {} are not used, because this key takes some of the training "
                                               "images instead; to use them, remove this key",
                                               experiment.dataset.component.name));
  }
  if (info.num_outputs() != data::kUnknownClasses) check_task(experiment, info, findings);
  check_views(experiment, info, findings);
  check_batch_transforms(experiment, info, findings);
  check_sampler(experiment, info, findings);
  check_cached_features(experiment, info, findings);
  const char* const train_key = "dataset.train_transforms";
  const char* const validation_key = "dataset.validation_transforms";
  const auto train_shape = check_transforms(train_key, experiment.dataset.train_transforms, info, findings);
  const auto validation_shape = check_transforms(validation_key, experiment.dataset.validation_transforms, info, findings);
  if (model_of(experiment, findings) == nullptr) return;
  check_outputs(experiment, *model, info, findings);
  const bool fits = !train_shape || check_inputs(experiment, *model, *train_shape, train_key, findings);
  if (fits && validation_shape) check_inputs(experiment, *model, *validation_shape, validation_key, findings);
  if (fits && train_shape) check_size_schedule(experiment, *model, *train_shape, info, findings);
}

}  // namespace trainer::recipe
