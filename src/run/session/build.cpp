#include "run/session/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/text.h"
#include "datasets/registry.h"
#include "datasets/staged_folder.h"
#include "inference/description.h"
#include "models/registry.h"
#include "nn/layers.h"
#include "run/session/advice.h"
#include "run/session/cached_features.h"
#include "run/session/check.h"
#include "run/session/split_samples.h"
#include "run/session/weights.h"
#include "train/engine/failure_message.h"
#include "train/engine/parts.h"
#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::session {
namespace {

const Keys kRankKeys = {{"group_size", "dataset.distribution_group_size"}};

engine::PlaceOf places_of(const config::Experiment& experiment) {
  return [&](const std::string& key) { return experiment.place_of(key); };
}

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

// For data sets whose number of classes was unknown when the configuration was checked.
void check_num_classes(const config::Experiment& experiment, const data::DatasetInfo& info) {
  const auto& model = dynamic_cast<const models::ModelOptions&>(*experiment.model.component.options);
  if (info.num_classes == 0 || info.num_classes == model.num_outputs()) return;
  throw DataError(fmt::format("{}: {} has {}, but the data set {} has {}", experiment.place_of("model." + model.outputs_key()),
                              experiment.model.component.name, counted(model.num_outputs(), "output"), experiment.dataset.component.name,
                              counted(info.num_classes, "class", "classes")));
}

}  // namespace

int64_t global_batch_size(const config::Experiment& experiment, int world_size) {
  return with_places(places_of(experiment), kPlanKeys, [&] { return engine::global_batch_size(plan_options(experiment), world_size); });
}

engine::Plan make_plan(const config::Experiment& experiment, int64_t samples_per_epoch, int world_size) {
  return with_places(places_of(experiment), kPlanKeys,
                     [&] { return engine::make_plan(plan_options(experiment), samples_per_epoch, world_size); });
}

engine::Ranks make_ranks(const config::Experiment& experiment, distributed::ProcessGroups& groups) {
  const auto& section = experiment.dataset;
  return with_places(places_of(experiment), kRankKeys, [&] {
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

Recipe recipe_of(const config::Experiment& experiment, Logger& logger) {
  const auto& section = experiment.dataset;
  const auto& optimizer = experiment.optimizer;
  Recipe recipe{
      .parts = {.model = [&](const models::BuildContext& context) -> std::shared_ptr<models::Model> {
                  try {
                    return models::model_registry().make(experiment.model.component, context);
                  } catch (const OptionError& error) {
                    throw UsageError(fmt::format("{}: {}", experiment.place_of("model." + error.member()), error.problem()));
                  }
                },
                .task = nullptr,
                .optimizer =
                    [&](std::vector<optim::ParamGroup> groups) {
                      return optim::make_optimizer(optimizer.component, std::move(groups), optimizer.skip_zero_grads);
                    },
                .train = nullptr,
                .train_transforms = section.train_transforms,
                .validation_transforms = section.validation_transforms,
                .lr_schedule = experiment.lr_scheduler.component},
      .options = {.plan = plan_options(experiment),
                  .loop = loop_options(experiment),
                  .loading = {.num_workers = experiment.dataloader.num_workers.value.value_or(1),
                              .prefetch = experiment.dataloader.prefetch},
                  .placement = placement_options(experiment),
                  .sync_batch_norm = experiment.distributed.sync_batch_norm,
                  .parameters = parameter_options(experiment),
                  .data_parallel = experiment.distributed.data_parallel,
                  .grad_scaler = experiment.amp.scaler,
                  .warmup = experiment.lr_scheduler.warmup,
                  .ema = experiment.training.ema,
                  .init_from = experiment.model.init_from,
                  .init_strict = experiment.model.init_strict,
                  .keep_last = experiment.checkpoint.keep_last},
      .make_task =
          [&] { return task::task_registry().make(experiment.task.component, nn::loss_registry().make(experiment.loss.component)); },
      .network = "the network " + experiment.model.component.name,
      .loss = experiment.loss.component.name,
      .place_of = places_of(experiment),
      .open_samples = {},
      .sampler = experiment.dataloader.sampler,
      .distribution = section.distribution,
      .batch_transforms = section.batch_transforms,
      .num_unmixed_epochs = experiment.training.mixup_off_epochs,
      .histograms_every_epochs = experiment.logging.histograms_every_epochs,
      .advise_on_data = [&](const auto& epoch, int64_t number) { return advice_on_data(epoch, number, experiment); },
      .extend = experiment.training.extend};
  if (section.on_error == config::OnError::kSkip) {
    recipe.report_skipped = [&logger](const std::string& text) { logger.warn("skipped (dataset.on_error: skip): {}", text); };
  }
  return recipe;
}

namespace {

// The data set of the experiment, copied to a disk of this host if dataset.stage_to is set; `staged` is then the copy.
data::DatasetFactory place_dataset(RankContext& context, std::optional<datasets::StagedFolder>& staged) {
  const auto& section = context.experiment().dataset;
  auto dataset = datasets::dataset_registry().make(section.component);
  if (section.stage_to.empty()) return dataset;
  const bool is_first_of_host = context.local_rank() == 0;
  const auto folder = dataset.locate(context.logger());
  const auto files = dataset.list_files ? dataset.list_files() : std::vector<std::filesystem::path>{};
  staged.emplace(folder, files, section.stage_to, /*is_current=*/!is_first_of_host, context.logger());
  return dataset.in_folder(staged->path());
}

}  // namespace

Recipe recipe_of(RankContext& context) {
  const auto& experiment = context.experiment();
  auto& logger = context.logger();
  auto recipe = recipe_of(experiment, logger);
  const auto staged = std::make_shared<std::optional<datasets::StagedFolder>>();
  recipe.open_samples = [&context, &experiment, &logger, staged] {
    const auto num_overfit = num_overfit_samples(experiment, context.ranks().world->size());
    auto samples = open_samples(experiment, place_dataset(context, *staged), logger, num_overfit);
    if (num_overfit && context.rank() == 0) {
      logger.warn("{}: training and validation use only {}", experiment.place_of("training.overfit_batches"),
                  counted(samples.train.size(), "image"));
    }
    return samples;
  };
  recipe.on_done = [staged, &logger] {
    if (*staged) (*staged)->remove(logger);
  };
  recipe.load_weights = [&experiment, &logger](models::Model& model, const data::DatasetInfo& info) {
    const auto& section = experiment.model;
    if (section.weights.empty()) return;
    const auto& name = section.component.name;
    const auto file = fetch_weights(weights_source(name, section.weights, section.weights_mirror), logger);
    logger.info("{}", load_published_weights(file, name, model, info.class_names).text);
  };
  if (experiment.training.cache_features) {
    recipe.cache_features = [&context](engine::Network& network, engine::Data images, const Recipe::MakeData& make_data) {
      return cache_features(context, network, std::move(images), make_data);
    };
  }
  recipe.on_log = [&context](const std::filesystem::path& checkpoints) { context.begin_run(checkpoints); };
  recipe.on_failure = [&context](const std::exception& error) { context.end_failed_gpu(error); };
  return recipe;
}

ExperimentRecord record_of(const RankContext& context, std::vector<std::string> command_line) {
  const auto& experiment = context.experiment();
  ExperimentRecord record{.name = experiment.experiment,
                          .values = context.values(),
                          .text = context.config_text(),
                          .warnings = experiment.warnings,
                          .command_line = std::move(command_line),
                          .threads_source = context.threads_source(),
                          .ranks_source = context.ranks_source(),
                          .logs_all_ranks = experiment.logging.all_ranks,
                          .with_tensorboard = experiment.logging.tensorboard};
  if (experiment.dataset.split) record.split_table = [&experiment](const data::Dataset& files) { return split_table(experiment, files); };
  return record;
}

engine::Network build_network(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks,
                              const std::function<void(models::Model&)>& load_weights) {
  const auto logger = make_quiet_logger();
  auto recipe = recipe_of(experiment, *logger);
  if (load_weights) {
    recipe.parts.model = [&, make = recipe.parts.model](const models::BuildContext& context) {
      const nn::NoInitialValues values_are_loaded;
      auto model = make(context);
      load_weights(*model);
      return model;
    };
  }
  auto network = make_network(recipe, placement, ranks);
  // Again, because the network was made in float32.
  if (load_weights && placement.dtype == torch::kFloat64) load_weights(*network.model);
  return network;
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
  return open_samples(experiment, dataset_of(experiment), logger);
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

}  // namespace trainer::session
