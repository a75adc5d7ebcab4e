#include "trainer/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/saver.h"
#include "checkpoint/store.h"
#include "config/reader.h"
#include "data/samplers/sampler.h"
#include "data/sharded_sampler.h"
#include "device/cuda_module.h"
#include "device/placement.h"
#include "distributed/agreement.h"
#include "inference/place_model.h"
#include "inference/weights_by_name.h"
#include "launch/world/host_resources.h"
#include "reporting/sinks.h"
#include "run/session/check.h"
#include "run/session/resume.h"
#include "train/engine/parts.h"
#include "train/engine/training_loop.h"
#include "train/engine/validations.h"
#include "train/optim/lr_scheduler.h"
#include "train/optim/optimizer.h"
#include "trainer/amp.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"

namespace trainer {

ComponentConfig read_component(const RegistryBase& registry, const std::string& yaml) {
  return config::read_component(yaml, "text", registry);
}

std::vector<ComponentConfig> read_components(const RegistryBase& registry, const std::string& yaml) {
  return config::read_components(yaml, "text", registry);
}

namespace {

device::Placement choose_placement(distributed::Context& context, device::PlacementOptions options) {
  const bool is_cuda = context.device().is_cuda();
  options.device = is_cuda ? device::DeviceChoice::kCuda : device::DeviceChoice::kCpu;
  const device::HostShare share{.num_threads = world::default_compute_threads(context.num_processes_sharing_cpus()).count,
                                .local_rank = is_cuda ? context.device().index() : 0};
  const auto placement = device::choose_placement(options, share, is_cuda ? device::open_cuda_module() : device::CudaAccess());
  device::apply_placement(placement, options);
  return placement;
}

engine::Network make_network(TrainerParts& parts, const TrainerOptions& options, const device::Placement& placement,
                             const engine::Ranks& ranks) {
  const engine::NetworkOptions of_network{.seed = options.loop.seed,
                                          .sync_batch_norm = options.sync_batch_norm,
                                          .parameters = options.parameters,
                                          .grad_scaler = options.grad_scaler};
  return {parts.model, [&] { return std::move(parts.task); }, parts.optimizer, of_network, placement, ranks};
}

engine::TrainingSamples take_samples(const TrainerParts& parts, const TrainerOptions& options, const engine::Ranks& ranks) {
  const auto& sampler_of = data::sampler_registry();
  auto sampler =
      sampler_of.make(sampler_of.configure("shuffled"), {.dataset = *parts.train, .files = *parts.train, .seed = options.loop.seed});
  engine::OpenedSamples samples{.train = engine::Samples(parts.train)};
  if (parts.validation && !options.loop.validation.is_off()) samples.validation.emplace(parts.validation);
  return engine::make_training_samples(std::move(samples), std::move(sampler), options.plan.shards, ranks);
}

engine::SourceOptions source_of(const std::vector<ComponentConfig>& transforms, const TrainerOptions& options) {
  return {
      .transforms = transforms, .batch_size = options.loop.validation.batch_size, .loading = options.loading, .seed = options.loop.seed};
}

engine::Data make_data(const TrainerParts& parts, const TrainerOptions& options, const device::Placement& placement,
                       const engine::Ranks& ranks) {
  return {take_samples(parts, options, ranks),
          {.plan = options.plan,
           .train = source_of(parts.train_transforms, options),
           .validation = source_of(parts.validation_transforms, options)},
          placement,
          ranks};
}

optim::LrSchedule make_lr_schedule(const TrainerParts& parts, const TrainerOptions& options, const engine::Plan& plan) {
  const auto total_steps = plan.total_steps;
  if (!parts.lr_factor) return optim::make_lr_schedule(parts.lr_schedule, options.warmup, total_steps, plan.steps_per_epoch);
  return {.factor = [factor = parts.lr_factor, total_steps](int64_t step) { return factor(step, total_steps); },
          .group_factors = {{"initial_lr", 1}}};
}

void check_options(const TrainerOptions& options) {
  const auto require_positive = [](const char* member, const std::optional<int64_t>& value) {
    if (value && *value < 1) throw OptionError(member, fmt::format("is {}; it must be at least 1", *value));
  };
  const auto& plan = options.plan;
  const auto& loop = options.loop;
  require_positive("batch_size", plan.batch_size);
  require_positive("global_batch_size", plan.global_batch_size);
  require_positive("accumulation_steps", plan.accumulation_steps);
  require_positive("epochs", plan.epochs);
  require_positive("steps", plan.steps);
  require_positive("validation.batch_size", loop.validation.batch_size);
  require_positive("validation.every_epochs", loop.validation.every_epochs);
  require_positive("validation.every_steps", loop.validation.every_steps);
  require_positive("checkpoint_every_epochs", loop.checkpoint_every_epochs);
  require_positive("checkpoint_every_steps", loop.checkpoint_every_steps);
  require_positive("log_every_steps", loop.log_every_steps);
  require_positive("keep_last", options.keep_last);
  // Written so that NaN is refused.
  const auto require = [](bool is_met, const std::string& member, auto value, const char* range) {
    if (!is_met) throw OptionError(member, fmt::format("is {}; it must be {}", value, range));
  };
  const auto require_integer = [&](const char* member, int64_t value, int64_t min, int64_t max) {
    require(value >= min && value <= max, member, value, fmt::format("from {} to {}", min, max).c_str());
  };
  const auto is_not_negative = [](double value) { return value >= 0 && std::isfinite(value); };
  require_integer("num_workers", options.loading.num_workers, 0, 256);
  require_integer("prefetch", options.loading.prefetch, 1, 1024);
  require_integer("num_threads", options.placement.num_threads.value_or(1), 1, 1024);
  const double max_grad_norm = loop.max_grad_norm.value_or(1);
  require(max_grad_norm > 0, "max_grad_norm", max_grad_norm, "greater than 0");
  require(loop.straggler_ratio > 1, "straggler_ratio", loop.straggler_ratio, "greater than 1");
  if (const auto& early = loop.early_stopping) {
    require_positive("early_stopping.patience", early->patience);
    require(is_not_negative(early->min_delta), "early_stopping.min_delta", early->min_delta, "at least 0");
  }
  const auto& warmup = options.warmup;
  require(warmup.steps >= 0, "warmup.steps", warmup.steps, "at least 0");
  require(is_not_negative(warmup.epochs), "warmup.epochs", warmup.epochs, "at least 0");
  require(warmup.start_factor >= 0 && warmup.start_factor <= 1, "warmup.start_factor", warmup.start_factor, "from 0 to 1");
  if (const auto& ema = options.ema) require(ema->decay >= 0 && ema->decay < 1, "ema.decay", ema->decay, "at least 0 and less than 1");
  for (size_t i = 0; i < options.parameters.groups.size(); ++i) {
    const auto& group = options.parameters.groups[i];
    require(is_not_negative(group.lr_factor), fmt::format("groups[{}].lr_factor", i), group.lr_factor, "at least 0");
    const double weight_decay = group.weight_decay.value_or(0);
    require(is_not_negative(weight_decay), fmt::format("groups[{}].weight_decay", i), weight_decay, "at least 0");
  }
  // Throws for options that are out of range, also if they have no effect.
  amp::GradScaler(options.grad_scaler, torch::kCPU);
  if (plan.epochs.has_value() == plan.steps.has_value()) throw OptionError("epochs", "set either epochs or steps");
  if (plan.batch_size && plan.global_batch_size) throw OptionError("batch_size", "set either batch_size or global_batch_size");
  if (options.warmup.steps > 0 && options.warmup.epochs > 0) throw OptionError("warmup", "set either steps or epochs");
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

// Throws UsageError if network and task do not fit the samples of `which`.
void check_samples(const engine::Network& network, const engine::DataSource& source, const char* which, const std::string& monitor) {
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
        fmt::format("the network has {}, but {} has {}", counted(model.num_outputs(), "output"), which, session::outputs_text(info)));
  }
  const auto mismatches = network.task->mismatches({.loss = "the loss",
                                                    .dataset = which,
                                                    .num_classes = info.num_classes,
                                                    .has_masks = info.has_masks,
                                                    .is_multi_label = info.is_multi_label,
                                                    .monitor = monitor});
  if (!mismatches.empty()) throw UsageError(mismatches.front().text);
}

// Throws UsageError if network, task, optimizer, schedule and data cannot be used together.
void check_fit(const TrainerParts& parts, const TrainerOptions& options, const engine::Network& network, const engine::Data& data) {
  const auto& monitor = options.loop.monitor.metric;
  check_samples(network, data.train, "TrainerParts::train", monitor);
  if (data.validation) check_samples(network, *data.validation, "TrainerParts::validation", monitor);
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

engine::Parts assemble(distributed::Context& context, TrainerParts& parts, const TrainerOptions& options) {
  check_parts(parts);
  check_options(options);
  const auto placement = choose_placement(context, options.placement);
  auto ranks = engine::make_ranks(context.groups(), {.synchronises_statistics = options.sync_batch_norm});
  const auto devices = ranks.world->all_gather_bytes(placement.device.str());
  for (size_t rank = 0; rank < devices.size(); ++rank) ranks.infos[rank].device = devices[rank];
  auto network = make_network(parts, options, placement, ranks);
  auto data = make_data(parts, options, network.placement, ranks);
  check_fit(parts, options, network, data);
  const auto& samples = data.train.samples;
  if (network.task->needs_target_summary()) network.task->set_target_summary(data::summarize_targets(samples.dataset()));
  distributed::on_all_ranks(*ranks.world, [&] {
    if (context.rank() != 0 || network.model->num_fitted_images() == 0) return;
    inference::fit_model(*network.model, samples.dataset(),
                         engine::make_pipeline(parts.validation_transforms, samples.info(), network.placement));
  });
  auto lr_schedule = make_lr_schedule(parts, options, data.plan);
  return {std::move(network), std::move(data), std::move(lr_schedule), ranks, options.data_parallel, options.ema};
}

}  // namespace

namespace {

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

// Keeps the event of the end.
class End : public reporting::Sink {
 public:
  explicit End(reporting::EndEvent& kept) : kept_(kept) {}
  void on_end(const reporting::EndEvent& event) override { kept_ = event; }

 private:
  reporting::EndEvent& kept_;
};

}  // namespace

struct Trainer::State {
  State(distributed::Context& of_run, TrainerParts components, const TrainerOptions& chosen)
      : only(of_run.device(), chosen.placement),
        context(of_run),
        options(chosen),
        parts(assemble(of_run, components, options)),
        validation(components.validation),
        validation_transforms(components.validation_transforms),
        hooks(std::move(components.hooks)) {
    if (!parts.data.validation) {
      options.loop.validation.every_epochs = {};
      options.loop.validation.every_steps = {};
    }
    reporter.add(std::make_unique<End>(end));
    distributed::on_all_ranks(*context.world(), [&] {
      if (context.rank() != 0) return;
      reporter.add(reporting::make_console(*context.logger(), {}));
      for (auto& sink : components.sinks) reporter.add(std::move(sink));
      if (options.checkpoint_folder.empty()) return;
      saver.emplace(checkpoint::Store(options.checkpoint_folder, options.keep_last), parts.network.placement.pin_memory);
    });
  }

  void require_before_run() const {
    if (has_run) throw std::logic_error("Trainer::run() was called already; make a new Trainer, and resume() it from a checkpoint");
  }

  const OnlyTrainer only;
  bool has_run = false;
  distributed::Context& context;
  TrainerOptions options;
  engine::Parts parts;
  std::shared_ptr<const data::Dataset> validation;
  std::vector<ComponentConfig> validation_transforms;
  std::vector<std::unique_ptr<engine::TrainingHook>> hooks;
  reporting::EndEvent end;
  reporting::Reporter reporter;
  std::optional<checkpoint::Saver> saver;
  std::optional<session::Checkpoint> start;
};

Trainer::Trainer(distributed::Context& context, TrainerParts parts, const TrainerOptions& options)
    : state_(std::make_unique<State>(context, std::move(parts), options)) {}

Trainer::~Trainer() = default;

models::Model& Trainer::model() { return *state_->parts.network.model; }

void Trainer::resume(const std::filesystem::path& checkpoint) {
  state_->require_before_run();
  std::optional<session::Checkpoint> mine;
  distributed::on_all_ranks(*state_->context.world(), [&] {
    if (state_->context.rank() == 0) mine = {checkpoint, checkpoint::load(checkpoint)};
  });
  state_->start = session::broadcast(checkpoint, std::move(mine), *state_->context.world());
}

reporting::EndEvent Trainer::run(const std::function<bool()>& should_stop) {
  state_->require_before_run();
  state_->has_run = true;
  engine::RunCallbacks callbacks;
  callbacks.checkpoints.saver = state_->saver ? &*state_->saver : nullptr;
  engine::TrainingLoop loop(state_->options.loop, state_->parts, state_->reporter, should_stop, std::move(callbacks));
  for (const auto& hook : state_->hooks) loop.add_hook(*hook);
  if (const auto start = std::exchange(state_->start, std::nullopt)) loop.resume(start->tree, start->file.string());
  loop.run();
  return state_->end;
}

task::Measurement Trainer::evaluate(std::shared_ptr<const data::Dataset> samples, bool averaged) {
  auto& parts = state_->parts;
  const auto* which = samples ? "the evaluated data set" : "TrainerParts::validation";
  if (!samples) samples = state_->validation;
  if (!samples || samples->size() == 0) throw UsageError("there are no samples to evaluate; give a data set that has some");
  if (averaged && !parts.ema) throw UsageError("there are no averaged parameters to evaluate; set TrainerOptions::ema");
  auto options = source_of(state_->validation_transforms, state_->options);
  options.batch_size = std::min(options.batch_size, samples->size());
  engine::DataSource source(engine::Samples(std::move(samples)), options, parts.network.placement, parts.ranks);
  check_samples(parts.network, source, which, state_->options.loop.monitor.metric);
  parts.data_parallel->sync_buffers();
  std::optional<optim::AveragedParameters> averages;
  if (averaged) averages.emplace(*parts.ema);
  const bool was_training = parts.network.model->is_training();
  auto measured =
      engine::evaluate_model(parts.network, parts.ranks, source, state_->options.loop.validation.tta, [](int64_t) { return false; });
  parts.network.model->train(was_training);
  return std::move(measured).value();
}

}  // namespace trainer
