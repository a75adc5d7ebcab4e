#include "run/recipe/build.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "inference/description.h"
#include "models/model_registry.h"
#include "nn/layers.h"
#include "run/recipe/advice.h"
#include "train/engine/failure_message.h"
#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::recipe {
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
          .steps = training.steps,
          .size_schedule = experiment.dataset.size_schedule};
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

}  // namespace trainer::recipe
