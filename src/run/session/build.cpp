#include "run/session/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/text.h"
#include "datasets/registry.h"
#include "inference/description.h"
#include "models/registry.h"
#include "nn/layers.h"
#include "run/session/split_samples.h"
#include "train/engine/failure_message.h"
#include "train/engine/parts.h"
#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::session {
namespace {

using Keys = std::map<std::string, std::string>;

// Calls `act`. Turns an OptionError into a UsageError that names the key and its position in the experiment file instead of the member.
template <class Act>
auto with_places(const config::Experiment& experiment, const Keys& keys, const Act& act) {
  try {
    return act();
  } catch (const OptionError& error) {
    throw UsageError(fmt::format("{}: {}", experiment.place_of(keys.at(error.member())), error.problem()));
  }
}

const Keys kPlanKeys = {{"batch_size", "dataloader.batch_size"},
                        {"global_batch_size", "dataloader.global_batch_size"},
                        {"accumulation_steps", "training.accumulation_steps"},
                        {"shards", "dataloader.shards"},
                        {"epochs", "training.epochs"},
                        {"steps", "training.steps"}};

const Keys kRankKeys = {{"group_size", "dataset.distribution_group_size"}};

engine::PlanOptions plan_options(const config::Experiment& experiment) {
  const auto& loader = experiment.dataloader;
  const auto& training = experiment.training;
  return {.batch_size = loader.batch_size,
          .global_batch_size = loader.global_batch_size,
          .accumulation_steps = training.accumulation_steps,
          .drop_last = loader.drop_last,
          .shards = loader.shards,
          .epochs = training.epochs,
          .steps = training.steps};
}

// Returns the result of `build`. Throws UsageError when memory runs out; `what`: what needed the memory.
template <class Build>
auto build_in_memory(const std::string& what, const char* remedy, const Build& build) {
  try {
    return build();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!engine::is_too_large(error)) throw;
    const auto num_bytes = engine::bytes_asked_for(error);
    throw UsageError(fmt::format("out of memory for {}{}; {}", what,
                                 num_bytes ? fmt::format(" (one of its tensors needs {})", format_bytes(*num_bytes)) : "", remedy));
  }
}

// For data sets whose number of classes was unknown when the configuration was checked.
void check_num_classes(const config::Experiment& experiment, const data::DatasetInfo& info) {
  const auto& model = dynamic_cast<const models::ModelOptions&>(*experiment.model.component.options);
  if (info.num_classes == 0 || info.num_classes == model.num_outputs()) return;
  throw DataError(fmt::format("{}: {} has {}, but the data set {} has {}", experiment.place_of("model." + model.outputs_key()),
                              experiment.model.component.name, counted(model.num_outputs(), "output"), experiment.dataset.component.name,
                              counted(info.num_classes, "class", "classes")));
}

engine::SourceOptions source_options(const config::Experiment& experiment, const std::vector<ComponentConfig>& transforms, Logger& logger) {
  engine::SourceOptions options{
      .transforms = transforms,
      .batch_size = experiment.validation.batch_size,
      .loading = {.num_workers = experiment.dataloader.num_workers.value.value_or(1), .prefetch = experiment.dataloader.prefetch},
      .seed = static_cast<uint64_t>(experiment.seed),
      .distribution = experiment.dataset.distribution};
  if (experiment.dataset.on_error == config::OnError::kSkip) {
    options.report_skipped = [&logger](const std::string& text) { logger.warn("skipped (dataset.on_error: skip): {}", text); };
  }
  return options;
}

}  // namespace

optim::LrSchedule make_lr_schedule(const config::Experiment& experiment, int64_t total_steps, int64_t steps_per_epoch) {
  const auto& section = experiment.lr_scheduler;
  const std::string key = section.warmup.epochs > 0 ? "lr_scheduler.warmup_epochs" : "lr_scheduler.warmup_steps";
  return with_places(experiment, {{"warmup", key}},
                     [&] { return optim::make_lr_schedule(section.component, section.warmup, total_steps, steps_per_epoch); });
}

int64_t global_batch_size(const config::Experiment& experiment, int world_size) {
  return with_places(experiment, kPlanKeys, [&] { return engine::global_batch_size(plan_options(experiment), world_size); });
}

engine::Plan make_plan(const config::Experiment& experiment, int64_t samples_per_epoch, int world_size) {
  return with_places(experiment, kPlanKeys, [&] { return engine::make_plan(plan_options(experiment), samples_per_epoch, world_size); });
}

engine::Ranks make_ranks(const config::Experiment& experiment, distributed::ProcessGroups& groups) {
  const auto& section = experiment.dataset;
  return with_places(experiment, kRankKeys, [&] {
    return engine::make_ranks(groups, {.synchronises_statistics = experiment.distributed.sync_batch_norm,
                                       .distribution = section.distribution,
                                       .group_size = section.distribution_group_size.value});
  });
}

engine::LoopOptions loop_options(const config::Experiment& experiment) {
  return {.seed = static_cast<uint64_t>(experiment.seed),
          .max_grad_norm = experiment.training.max_grad_norm,
          .on_non_finite = experiment.training.on_non_finite,
          .early_stopping = experiment.training.early_stopping,
          .validation = experiment.validation,
          .monitor = experiment.checkpoint.best,
          .checkpoint_every_epochs = experiment.checkpoint.every_epochs,
          .checkpoint_every_steps = experiment.checkpoint.every_steps,
          .log_every_steps = experiment.logging.every_steps,
          .straggler_ratio = experiment.distributed.straggler_ratio};
}

int64_t default_num_workers(const device::Placement& placement) {
  // On the CPU, all cores are needed for computing. A GPU trains faster than one thread can decode images.
  constexpr int kMost = 16;
  return placement.device.is_cpu() ? 1 : std::min(placement.num_threads, kMost);
}

device::PlacementOptions placement_options(const config::Experiment& experiment) {
  return inference::placement_options(experiment.runtime, experiment.amp, experiment.dataloader.pin_memory.value);
}

optim::ParameterOptions parameter_options(const config::Experiment& experiment) {
  const auto& section = experiment.optimizer;
  return {.groups = section.groups,
          .decay_norm_and_bias = section.decay_norm_and_bias,
          .layer_decay = section.layer_decay.value_or(1),
          .freeze = experiment.model.freeze,
          .unfreeze_after = experiment.training.unfreeze_after};
}

engine::Network build_network(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks,
                              const std::function<void(models::Model&)>& load_weights) {
  const auto make_model = [&](const models::BuildContext& context) {
    try {
      std::optional<nn::NoInitialValues> values_are_loaded;
      if (load_weights) values_are_loaded.emplace();
      auto model = models::model_registry().make(experiment.model.component, context);
      if (load_weights) load_weights(*model);
      return model;
    } catch (const OptionError& error) {
      throw UsageError(fmt::format("{}: {}", experiment.place_of("model." + error.member()), error.problem()));
    }
  };
  const auto& section = experiment.optimizer;
  const auto make_optimizer = [&](std::vector<optim::ParamGroup> groups) {
    return optim::make_optimizer(section.component, std::move(groups), section.skip_zero_grads);
  };
  const engine::NetworkOptions options{.seed = static_cast<uint64_t>(experiment.seed),
                                       .sync_batch_norm = experiment.distributed.sync_batch_norm,
                                       .parameters = parameter_options(experiment),
                                       .grad_scaler = experiment.amp.scaler,
                                       .name = "the network " + experiment.model.component.name,
                                       .place_of = [&](const std::string& key) { return experiment.place_of(key); }};
  const auto make_task = [&] {
    return task::task_registry().make(experiment.task.component, nn::loss_registry().make(experiment.loss.component));
  };
  return build_in_memory(fmt::format("the model {} and its optimizer", experiment.model.component.name),
                         "reduce the sizes in the section model, or dataset.num_classes", [&] {
                           engine::Network network(make_model, make_task, make_optimizer, options, placement, ranks);
                           // Again, because the network was made in float32.
                           if (load_weights && placement.dtype == torch::kFloat64) load_weights(*network.model);
                           return network;
                         });
}

uint64_t augmentation_seed(const config::Experiment& experiment) {
  return engine::augmentation_seed(static_cast<uint64_t>(experiment.seed));
}

namespace {

// Invalid labels form a separate class; they are reported when the sample is read.
std::vector<int64_t> labels_of(const data::Dataset& files) {
  const auto num_classes = files.info().num_classes;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < files.size(); ++i) {
    const auto label = files.label(i);
    labels.push_back(data::refusal_of_label(label, num_classes).empty() ? label : num_classes);
  }
  return labels;
}

// Divides the files by dataset.split.
SampleSplit divide_training_files(const config::Experiment& experiment, const data::Dataset& files, data::Split held_out, Logger& logger) {
  const auto parts = divide_files(experiment, files).parts;
  SampleSplit result;
  int64_t num_others = 0;
  for (int64_t i = 0; i < files.size(); ++i) {
    const auto part = parts[static_cast<size_t>(i)];
    if (part == held_out) {
      result.first.push_back(i);
    } else if (part == data::Split::kTrain) {
      result.second.push_back(i);
    } else {
      ++num_others;
    }
  }
  const bool is_test = held_out == data::Split::kTest;
  if (result.first.empty() || result.second.empty()) {
    throw UsageError(fmt::format(
        "{}: of {}, {} are for {} and {} for training; choose another fraction{}", experiment.place_of("dataset.split"),
        counted(files.size(), "image"), result.first.size(), is_test ? "the test" : "validation", result.second.size(),
        is_test ? " (dataset.split.test)" : ", smaller groups (dataset.split.group), fewer folds, another seed, or stratify: true"));
  }
  if (!is_test && num_others == 0 && experiment.dataset.split->test > 0) {
    logger.warn("{}: the test part has no images; raise dataset.split.test, or choose another dataset.split.seed",
                experiment.place_of("dataset.split"));
  }
  logger.info("of {}, {} are for training, {} for {} and {} for {} (dataset.split)", counted(files.size(), "image"), result.second.size(),
              result.first.size(), is_test ? "the test" : "validation", num_others, is_test ? "validation" : "a test");
  return result;
}

// The indices of the training files that are held out for `chosen`, and of the files to train on.
SampleSplit split_training_files(const config::Experiment& experiment, const data::Dataset& files, Logger& logger,
                                 data::Split chosen = data::Split::kValidation) {
  if (experiment.dataset.split) return divide_training_files(experiment, files, chosen, logger);
  const auto size = files.size();
  const double part = experiment.dataset.validation_split.value.value_or(0);
  const auto count = static_cast<int64_t>(static_cast<double>(size) * part + 0.5);
  const auto seed = static_cast<uint64_t>(experiment.seed);
  const bool by_class = experiment.dataset.stratify && files.info().has_labels();
  auto indices = by_class ? split_by_class(labels_of(files), count, seed) : split_samples(indices_up_to(size), count, seed);
  const auto& [held_out, rest] = indices;
  if (held_out.empty() || count == size) {
    const bool are_single = held_out.empty() && count > 0 && count < size;
    throw UsageError(fmt::format("{}: {} of {} images leaves no images for training or none for validation{}",
                                 experiment.place_of("dataset.validation_split"), part, size,
                                 are_single ? ", because no class has more than one image, and each class keeps one for training; set "
                                              "dataset.stratify: false to hold out images regardless of their class"
                                            : "; choose another fraction"));
  }
  logger.info("{} of the {} training images are held out for validation (dataset.validation_split: {})", held_out.size(), size, part);
  return indices;
}

// Chooses `count` of these training samples at random, by the seed; they serve for training and for validation.
std::vector<int64_t> choose_overfit(const config::Experiment& experiment, int64_t count, std::vector<int64_t> samples) {
  count = std::min(count, static_cast<int64_t>(samples.size()));
  return split_samples(std::move(samples), count, static_cast<uint64_t>(experiment.seed)).first;
}

std::shared_ptr<const data::Dataset> open_files(const config::Experiment& experiment, const data::DatasetFactory& dataset,
                                                data::Split split, Logger& logger) {
  auto files = dataset.open(split, logger);
  if (files->size() > 0) return files;
  throw DataError(fmt::format("{}: {} has no {} samples; add some, or use another data set", experiment.place_of("dataset.name"),
                              experiment.dataset.component.name, split == data::Split::kTrain ? "training" : "validation"));
}

engine::OpenedSamples open_samples_unguarded(const config::Experiment& experiment, const data::DatasetFactory& dataset, Logger& logger,
                                             const std::optional<int64_t>& num_overfit) {
  const auto files = open_files(experiment, dataset, data::Split::kTrain, logger);
  check_num_classes(experiment, files->info());
  std::vector<int64_t> held_out, rest;
  if (experiment.dataset.holds_out()) {
    std::tie(held_out, rest) = split_training_files(experiment, *files, logger);
    std::vector<data::Split> parts(static_cast<size_t>(files->size()), data::Split::kTest);
    for (const auto i : rest) parts[static_cast<size_t>(i)] = data::Split::kTrain;
    for (const auto i : held_out) parts[static_cast<size_t>(i)] = data::Split::kValidation;
    for (const auto part : {data::Split::kTrain, data::Split::kValidation}) {
      if (const auto warning = describe_missing_classes(*files, parts, part); !warning.empty()) logger.warn("{}", warning);
    }
  }
  if (num_overfit) rest = choose_overfit(experiment, *num_overfit, experiment.dataset.holds_out() ? rest : indices_up_to(files->size()));
  engine::OpenedSamples samples{.train =
                                    experiment.dataset.holds_out() || num_overfit ? engine::Samples(files, rest) : engine::Samples(files)};
  if (experiment.validation.is_off()) return samples;
  if (num_overfit) {
    samples.validation = samples.train;
  } else if (experiment.dataset.holds_out()) {
    samples.validation.emplace(files, held_out);
  } else {
    samples.validation.emplace(open_files(experiment, dataset, data::Split::kValidation, logger));
  }
  return samples;
}

engine::Samples open_split_unguarded(const config::Experiment& experiment, const data::DatasetFactory& dataset, data::Split split,
                                     Logger& logger) {
  const auto files = open_files(experiment, dataset, experiment.dataset.holds_out() ? data::Split::kTrain : split, logger);
  check_num_classes(experiment, files->info());
  if (!experiment.dataset.holds_out()) return engine::Samples(files);
  const bool is_train = split == data::Split::kTrain;
  const auto [held_out, rest] = split_training_files(experiment, *files, logger, is_train ? data::Split::kValidation : split);
  return {files, is_train ? rest : held_out};
}

}  // namespace

Division divide_files(const config::Experiment& experiment, const data::Dataset& files) {
  const auto& options = *experiment.dataset.split;
  const bool by_class = options.stratify && files.info().has_labels();
  auto groups = groups_of(files, options);
  auto parts = divide(groups, by_class ? labels_of(files) : std::vector<int64_t>(), options);
  return {std::move(groups), std::move(parts)};
}

std::optional<int64_t> num_overfit_samples(const config::Experiment& experiment, int world_size) {
  const auto& num_batches = experiment.training.overfit_batches;
  if (!num_batches) return std::nullopt;
  return *num_batches * global_batch_size(experiment, world_size);
}

engine::OpenedSamples open_samples(const config::Experiment& experiment, Logger& logger) {
  return open_samples(experiment, datasets::dataset_registry().make(experiment.dataset.component), logger);
}

engine::OpenedSamples open_samples(const config::Experiment& experiment, const data::DatasetFactory& dataset, Logger& logger,
                                   const std::optional<int64_t>& num_overfit) {
  return build_in_memory("the list of samples of " + experiment.dataset.component.name, "choose a smaller data set",
                         [&] { return open_samples_unguarded(experiment, dataset, logger, num_overfit); });
}

engine::Samples open_split(const config::Experiment& experiment, const data::DatasetFactory& dataset, data::Split split, Logger& logger) {
  return build_in_memory("the list of samples of " + experiment.dataset.component.name, "choose a smaller data set",
                         [&] { return open_split_unguarded(experiment, dataset, split, logger); });
}

std::unique_ptr<data::Sampler> make_sampler(const config::Experiment& experiment, const engine::Samples& train) {
  return data::sampler_registry().make(experiment.dataloader.sampler, {.dataset = train.dataset(),
                                                                       .files = train.files(),
                                                                       .seed = static_cast<uint64_t>(experiment.seed),
                                                                       .place_of = [&](const std::string& key) {
                                                                         return experiment.place_of("dataloader.sampler." + key);
                                                                       }});
}

engine::Data make_data(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks, Logger& logger,
                       engine::TrainingSamples samples) {
  const auto& section = experiment.dataset;
  const engine::DataOptions options{.plan = plan_options(experiment),
                                    .train = source_options(experiment, section.train_transforms, logger),
                                    .validation = source_options(experiment, section.validation_transforms, logger),
                                    .batch_transforms = section.batch_transforms,
                                    .num_unmixed_epochs = experiment.training.mixup_off_epochs};
  return with_places(experiment, kPlanKeys, [&] { return engine::Data(std::move(samples), options, placement, ranks); });
}

engine::DataSource make_source(const config::Experiment& experiment, const std::vector<ComponentConfig>& transforms,
                               const device::Placement& placement, const engine::Ranks& ranks, Logger& logger, engine::Samples samples) {
  auto options = source_options(experiment, transforms, logger);
  options.batch_size = std::min(options.batch_size, samples.size());
  return {std::move(samples), options, placement, ranks};
}

}  // namespace trainer::session
