#include "run/session/build.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "datasets/staged_folder.h"
#include "inference/description.h"
#include "models/model_registry.h"
#include "nn/layers.h"
#include "run/samples/open_samples.h"
#include "run/session/advice.h"
#include "run/session/cached_features.h"
#include "run/session/check.h"
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

int64_t default_num_workers(const device::Placement& placement) {
  // On the CPU, all cores are needed for computing. A GPU trains faster than one thread can decode images.
  constexpr int kMost = 16;
  return placement.device.is_cpu() ? 1 : std::min(placement.num_threads, kMost);
}

device::PlacementOptions placement_options(const config::Experiment& experiment) {
  return inference::placement_options(experiment.runtime, experiment.amp, experiment.dataloader.pin_memory.value);
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
                  .loop = {.seed = static_cast<uint64_t>(experiment.seed),
                           .max_grad_norm = experiment.training.max_grad_norm,
                           .on_non_finite = experiment.training.on_non_finite,
                           .early_stopping = experiment.training.early_stopping,
                           .validation = experiment.validation,
                           .monitor = experiment.checkpoint.best,
                           .checkpoint_every_epochs = experiment.checkpoint.every_epochs,
                           .checkpoint_every_steps = experiment.checkpoint.every_steps,
                           .log_every_steps = experiment.logging.every_steps,
                           .straggler_ratio = experiment.distributed.straggler_ratio},
                  .loading = {.num_workers = experiment.dataloader.num_workers.value.value_or(1),
                              .prefetch = experiment.dataloader.prefetch},
                  .placement = placement_options(experiment),
                  .sync_batch_norm = experiment.distributed.sync_batch_norm,
                  .parameters = {.groups = optimizer.groups,
                                 .decay_norm_and_bias = optimizer.decay_norm_and_bias,
                                 .layer_decay = optimizer.layer_decay.value_or(1),
                                 .freeze = experiment.model.freeze,
                                 .unfreeze_after = experiment.training.unfreeze_after},
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
      .advise_on_data = [&](const auto& epoch, int64_t number) { return advice_on_data(epoch, number, experiment); }};
  if (section.on_error == config::OnError::kSkip) {
    recipe.report_skipped = [&logger](const std::string& text) { logger.warn("skipped (dataset.on_error: skip): {}", text); };
  }
  return recipe;
}

namespace {

// The data set of the experiment, copied to a disk of this host if dataset.stage_to is set; `staged` is then the copy.
data::DatasetFactory place_dataset(RankContext& context, std::optional<datasets::StagedFolder>& staged) {
  const auto& section = context.experiment().dataset;
  auto dataset = dataset_of(context.experiment());
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
  return {.experiment = &context.experiment(),
          .values = context.values(),
          .text = context.config_text(),
          .command_line = std::move(command_line),
          .threads_source = context.threads_source(),
          .ranks_source = context.ranks_source()};
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

std::optional<int64_t> num_overfit_samples(const config::Experiment& experiment, int world_size) {
  const auto& num_batches = experiment.training.overfit_batches;
  if (!num_batches) return std::nullopt;
  return *num_batches * global_batch_size(experiment, world_size);
}

}  // namespace trainer::session
