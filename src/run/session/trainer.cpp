#include "trainer/trainer.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/keys/key.h"
#include "config/experiment.h"
#include "config/reader.h"
#include "data/samplers/sampler.h"
#include "device/placement.h"
#include "reporting/sinks.h"
#include "run/rank/rank_context.h"
#include "run/recipe/recipe.h"
#include "run/recipe/registries.h"
#include "run/session/session.h"
#include "train/engine/parts.h"
#include "train/engine/validations.h"
#include "trainer/error.h"

namespace trainer {

ComponentConfig read_component(const RegistryBase& registry, const std::string& yaml) {
  return config::read_component(yaml, "text", registry);
}

std::vector<ComponentConfig> read_components(const RegistryBase& registry, const std::string& yaml) {
  return config::read_components(yaml, "text", registry);
}

namespace {

// The tables of the experiment file know the ranges.
void check_options(const TrainerOptions& options) {
  const auto& [plan, loop, parameters] = std::tie(options.plan, options.loop, options.parameters);
  config::Experiment experiment;
  experiment.dataset.size_schedule = plan.size_schedule;
  experiment.dataloader.batch_size = plan.batch_size;
  experiment.dataloader.global_batch_size = plan.global_batch_size;
  experiment.dataloader.num_workers.value = options.loading.num_workers;
  experiment.dataloader.prefetch = options.loading.prefetch;
  experiment.optimizer.layer_decay = parameters.layer_decay;
  experiment.optimizer.groups = parameters.groups;
  experiment.lr_scheduler.warmup = options.warmup;
  experiment.training = {.epochs = plan.epochs,
                         .steps = plan.steps,
                         .accumulation_steps = plan.accumulation_steps,
                         .max_grad_norm = loop.max_grad_norm,
                         .max_minutes = {},
                         .ema = options.ema,
                         .unfreeze_after = parameters.unfreeze_after,
                         .early_stopping = loop.early_stopping,
                         .overfit_batches = {}};
  experiment.runtime.threads.value = options.placement.num_threads;
  experiment.amp.scaler = options.grad_scaler;
  experiment.distributed.straggler_ratio = loop.straggler_ratio;
  experiment.distributed.data_parallel = options.data_parallel;
  experiment.validation = loop.validation;
  experiment.checkpoint = {loop.checkpoint_every_epochs, loop.checkpoint_every_steps, options.keep_last};
  experiment.logging.every_steps = loop.log_every_steps;
  const auto registries = recipe::all_registries();
  check_values(SectionKeys([&](KeyTable& keys) { experiment.describe(keys, registries); }), "");
}

void check_parts(const TrainerParts& parts) {
  const auto require = [](bool is_there, const char* what) {
    if (!is_there) throw UsageError(std::string("a Trainer needs ") + what);
  };
  require(static_cast<bool>(parts.model), "TrainerParts::model");
  require(parts.task != nullptr, "TrainerParts::task");
  require(static_cast<bool>(parts.optimizer), "TrainerParts::optimizer");
  require(parts.train != nullptr && parts.train->size() > 0, "TrainerParts::train with at least one sample");
  require(!parts.validation || parts.validation->size() > 0, "samples in TrainerParts::validation, or null");
  const auto is_null = [](const auto& pointer) { return pointer == nullptr; };
  require(std::ranges::none_of(parts.hooks, is_null), "TrainerParts::hooks without null pointers");
  require(std::ranges::none_of(parts.sinks, is_null), "TrainerParts::sinks without null pointers");
}

recipe::Recipe recipe_of(TrainerParts parts, const TrainerOptions& options) {
  check_parts(parts);
  check_options(options);
  const auto task = std::make_shared<std::unique_ptr<task::Task>>(std::move(parts.task));
  recipe::Recipe recipe{.parts = std::move(parts),
                        .options = options,
                        .make_task = [task] { return std::move(*task); },
                        .open_samples = {},
                        .sampler = data::sampler_registry().configure("shuffled")};
  auto validation = options.loop.validation.is_off() ? nullptr : recipe.parts.validation;
  if (!validation) {
    recipe.options.loop.validation.every_epochs = {};
    recipe.options.loop.validation.every_steps = {};
  }
  recipe.open_samples = [train = recipe.parts.train, validation = std::move(validation)] {
    engine::OpenedSamples samples{.train = engine::Samples(train)};
    if (validation) samples.validation.emplace(validation);
    return samples;
  };
  return recipe;
}

// LibTorch's threads, settings and default generators are those of the process.
class OnlyTrainer {
 public:
  OnlyTrainer(torch::Device device, const device::PlacementOptions& options)
      : settings_(options), device_(device), random_(state::random_state(device)) {
    if (exists_.exchange(true)) throw std::logic_error("this process has a Trainer already; destroy it before the next one is made");
  }
  ~OnlyTrainer() {
    state::load_random_state(state::View(random_, "the random numbers before the Trainer"), device_);
    exists_ = false;
  }
  OnlyTrainer(const OnlyTrainer&) = delete;
  OnlyTrainer& operator=(const OnlyTrainer&) = delete;

 private:
  static inline std::atomic<bool> exists_ = false;
  const device::SavedSettings settings_;
  const torch::Device device_;
  const state::Tree random_;
};

}  // namespace

struct Trainer::State {
  State(distributed::Context& context, TrainerParts parts, const TrainerOptions& options)
      : only(context.device(), options.placement),
        recipe(recipe_of(std::move(parts), options)),
        rank(rank::rank_of(context, options)),
        session(rank, recipe) {
    reporter.add(std::make_unique<reporting::AtEnd>([this](const reporting::EndEvent& event) { end = event; }));
    if (rank.number() == 0) reporter.add(reporting::make_console(*rank.logger, {}));
    session.add_sinks(reporter);
  }

  void require_before_run() const {
    if (has_run) throw std::logic_error("Trainer::run() was called already; make a new Trainer, and resume() it from a checkpoint");
  }

  const OnlyTrainer only;
  recipe::Recipe recipe;
  run::Rank rank;
  session::Session session;
  reporting::EndEvent end;
  reporting::Reporter reporter;
  bool has_run = false;
};

Trainer::Trainer(distributed::Context& context, TrainerParts parts, const TrainerOptions& options)
    : state_(std::make_unique<State>(context, std::move(parts), options)) {}

Trainer::~Trainer() = default;

models::Model& Trainer::model() { return *state_->session.parts().network.model; }

void Trainer::resume(const std::filesystem::path& checkpoint) {
  state_->require_before_run();
  state_->session.resume(checkpoint);
}

reporting::EndEvent Trainer::run(const std::function<bool()>& should_stop) {
  state_->require_before_run();
  state_->has_run = true;
  state_->session.train(state_->reporter, should_stop);
  return state_->end;
}

task::Measurement Trainer::evaluate(std::shared_ptr<const data::Dataset> samples, bool averaged) {
  const auto& recipe = state_->recipe;
  auto& parts = state_->session.parts();
  const auto* which = samples ? "the evaluated data set" : "the validation samples";
  if (!samples) samples = recipe.parts.validation;
  if (!samples || samples->size() == 0) throw UsageError("there are no samples to evaluate; give a data set that has some");
  if (averaged && !parts.ema) throw UsageError("there are no averaged parameters to evaluate; set TrainerOptions::ema");
  auto source = recipe::make_source(recipe, recipe.parts.validation_transforms, parts.network.placement, parts.ranks,
                                    engine::Samples(std::move(samples)));
  recipe::check_samples(recipe, parts.network, source, which);
  parts.data_parallel->sync_buffers();
  std::optional<optim::AveragedParameters> averages;
  if (averaged) averages.emplace(*parts.ema);
  const bool was_training = parts.network.model->is_training();
  auto measured =
      engine::evaluate_model(parts.network, parts.ranks, source, recipe.options.loop.validation.tta, [](int64_t) { return false; });
  parts.network.model->train(was_training);
  return std::move(measured).value();
}

}  // namespace trainer
