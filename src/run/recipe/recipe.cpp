#include "run/recipe/recipe.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "data/samplers/sampler.h"
#include "inference/place_model.h"
#include "run/recipe/check.h"
#include "train/engine/validations.h"
#include "train/optim/optimizer.h"

namespace trainer::recipe {

const Keys kPlanKeys = {{"batch_size", "dataloader.batch_size"},
                        {"global_batch_size", "dataloader.global_batch_size"},
                        {"accumulation_steps", "training.accumulation_steps"},
                        {"shards", "dataloader.shards"},
                        {"epochs", "training.epochs"},
                        {"steps", "training.steps"},
                        {"size_schedule", "dataset.size_schedule"}};

engine::Network make_network(const Recipe& recipe, const device::Placement& placement, const engine::Ranks& ranks) {
  const auto& options = recipe.options;
  const engine::NetworkOptions of_network{.seed = options.loop.seed,
                                          .sync_batch_norm = options.sync_batch_norm,
                                          .parameters = options.parameters,
                                          .grad_scaler = options.grad_scaler,
                                          .name = recipe.network,
                                          .place_of = [&](const std::string& key) { return recipe.place(key); }};
  return engine::build_in_memory(recipe.network + " and its optimizer", "reduce the sizes of its layers, or the number of classes", [&] {
    return engine::Network(recipe.parts.model, recipe.make_task, recipe.parts.optimizer, of_network, placement, ranks);
  });
}

namespace {

engine::SourceOptions source_options(const Recipe& recipe, const std::vector<ComponentConfig>& transforms) {
  const auto& options = recipe.options;
  return {.transforms = transforms,
          .loading = options.loading,
          .seed = options.loop.seed,
          .distribution = recipe.distribution,
          .report_skipped = recipe.report_skipped};
}

}  // namespace

engine::Data make_data(const Recipe& recipe, const device::Placement& placement, const engine::Ranks& ranks,
                       engine::TrainingSamples samples) {
  const engine::DataOptions options{.plan = recipe.options.plan,
                                    .train = source_options(recipe, recipe.parts.train_transforms),
                                    .validation = source_options(recipe, recipe.parts.validation_transforms),
                                    .validation_batch_size = recipe.options.loop.validation.batch_size,
                                    .batch_transforms = recipe.batch_transforms,
                                    .num_unmixed_epochs = recipe.num_unmixed_epochs};
  return with_places(recipe.place_of, kPlanKeys, [&] { return engine::Data(std::move(samples), options, placement, ranks); });
}

engine::DataSource make_source(const Recipe& recipe, const std::vector<ComponentConfig>& transforms, const device::Placement& placement,
                               const engine::Ranks& ranks, engine::Samples samples) {
  const auto batch_size = std::min(recipe.options.loop.validation.batch_size, samples.size());
  return {std::move(samples), source_options(recipe, transforms), batch_size, placement, ranks};
}

data::Sampler make_sampler(const Recipe& recipe, const engine::Samples& train) {
  return data::sampler_registry().make(
      recipe.sampler,
      {.dataset = train.dataset(), .files = train.files(), .seed = recipe.options.loop.seed, .place_of = [&](const std::string& key) {
         return recipe.place("dataloader.sampler." + key);
       }});
}

optim::LrSchedule make_lr_schedule(const Recipe& recipe, const engine::Plan& plan) {
  const auto& parts = recipe.parts;
  const auto& warmup = recipe.options.warmup;
  const auto total_steps = plan.total_steps;
  if (parts.lr_factor) {
    return {.factor = [factor = parts.lr_factor, total_steps](int64_t step) { return factor(step, total_steps); },
            .group_factors = {{"initial_lr", 1}}};
  }
  return with_places(recipe.place_of, {{"warmup", warmup.epochs > 0 ? "lr_scheduler.warmup_epochs" : "lr_scheduler.warmup_steps"}},
                     [&] { return optim::make_lr_schedule(parts.lr_schedule, warmup, total_steps, plan.steps_per_epoch); });
}

void check_samples(const Recipe& recipe, const engine::Network& network, const engine::DataSource& source, const std::string& which) {
  const auto& model = *network.model;
  const auto& wanted = model.input_shape();
  const auto& shape = source.pipeline.output_shape();
  if (!inference::takes_shape(wanted, shape)) {
    throw UsageError(fmt::format("the network needs samples of shape {}, but those of {} have {} after their transforms",
                                 inference::input_shape_text(wanted), which, fmt::join(shape, "x")));
  }
  const auto& info = source.samples.info();
  if (model.num_outputs() != info.num_outputs()) {
    throw UsageError(
        fmt::format("the network has {}, but there are {} in {}", counted(model.num_outputs(), "output"), outputs_text(info), which));
  }
  const auto mismatches = network.task->mismatches({.loss = recipe.loss,
                                                    .dataset = which,
                                                    .num_classes = info.num_classes,
                                                    .has_masks = info.has_masks,
                                                    .is_multi_label = info.is_multi_label,
                                                    .monitor = recipe.options.loop.monitor.metric});
  if (!mismatches.empty()) throw UsageError(mismatches.front().text);
}

void check_fit(const Recipe& recipe, const engine::Network& network, const engine::Data& data) {
  const auto& [parts, options] = std::tie(recipe.parts, recipe.options);
  check_samples(recipe, network, data.train, "the training samples");
  if (data.validation) check_samples(recipe, network, *data.validation, "the validation samples");
  engine::monitored_metric(options.loop.monitor, *network.task);
  if (network.optimizer->needs_second_pass() && options.plan.accumulation_steps > 1) {
    throw OptionError("accumulation_steps", "the optimizer processes each batch twice, so it cannot accumulate micro-steps; set 1");
  }
  if (parts.lr_factor) {
    if (options.warmup.steps == 0 && options.warmup.epochs == 0) return;
    throw OptionError("warmup", "has no effect on TrainerParts::lr_factor; let this function return the factors of the warm-up");
  }
  const auto traits = optim::traits_of(parts.lr_schedule);
  if (traits.needs_validations && !data.validation) {
    throw UsageError(
        fmt::format("the schedule {} needs validations; set TrainerParts::validation and loop.validation.every_epochs, or choose another "
                    "schedule",
                    parts.lr_schedule.name));
  }
  if (traits.has_own_warmup && (options.warmup.steps > 0 || options.warmup.epochs > 0)) {
    throw OptionError("warmup", parts.lr_schedule.name + " has its own warm-up; remove this one");
  }
}

}  // namespace trainer::recipe
