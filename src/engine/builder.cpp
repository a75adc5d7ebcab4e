// From a configuration to the parts of a run.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "datasets/registry.h"
#include "distributed/host_exchange.h"
#include "engine/out_of_memory.h"
#include "engine/parts.h"
#include "models/registry.h"
#include "nn/sync_batch_norm.h"

namespace trainer::engine {
namespace {

// Independent streams under one user-given seed.
enum Stream : uint64_t { kInitStream = 1, kAugmentStream, kSplitStream };

// Of batch normalisation: two values of 8 bytes a channel and a count, for the widest layers that there are.
constexpr int64_t kStatisticsBytes = 256 * 1024;

input::BatchLayout batch_layout(const device::Placement& placement, const input::DatasetInfo& info) {
  return {placement.input_dtype, info.shape.size() == 3 && placement.memory_format == torch::MemoryFormat::ChannelsLast};
}

// `count` of the `size` sample indices, chosen by the seed alone, ascending; and the others.
std::pair<std::vector<int64_t>, std::vector<int64_t>> split_indices(int64_t size, double part, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  CounterRandom random(seed, kSplitStream);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.next_below(static_cast<uint32_t>(i))]);
  const auto middle = order.begin() + static_cast<int64_t>(static_cast<double>(size) * part + 0.5);
  std::sort(order.begin(), middle);
  std::sort(middle, order.end());
  return {{order.begin(), middle}, {middle, order.end()}};
}

void open_files(const config::Experiment& experiment, Logger& logger, DataSource& train, DataSource& validation) {
  const auto& section = experiment.dataset;
  const auto dataset = datasets::dataset_registry().make(section.component);
  const auto open = [&](datasets::Split split) { return dataset.open(split, logger); };
  train.files = open(datasets::Split::kTrain);
  if (section.validation_split == 0) {
    validation.files = open(datasets::Split::kValidation);
    return;
  }
  validation.files = open(datasets::Split::kTrain);
  const auto [held_out, rest] = split_indices(train.files->size(), section.validation_split, static_cast<uint64_t>(experiment.seed));
  if (held_out.empty() || rest.empty()) {
    throw UsageError(fmt::format("dataset.validation_split: {} of {} images leaves one side empty; choose another part",
                                 section.validation_split, train.files->size()));
  }
  train.part = std::make_unique<input::Subset>(*train.files, rest);
  validation.part = std::make_unique<input::Subset>(*validation.files, held_out);
}

void make_loader(DataSource& source, const std::vector<config::ComponentConfig>& transforms, int64_t batch_size,
                 const config::Experiment& experiment, const device::Placement& placement) {
  const auto& info = source.dataset().info();
  source.pipeline = std::make_unique<input::Pipeline>(transforms, info, batch_layout(placement, info));
  const input::LoaderOptions options{.batch_size = std::min(batch_size, source.dataset().size()),
                                     .num_workers = experiment.dataloader.num_workers,
                                     .prefetch = experiment.dataloader.prefetch,
                                     .pin_memory = placement.pin_memory,
                                     .target_dtype = placement.dtype,
                                     .seed = mix_seed(static_cast<uint64_t>(experiment.seed), kAugmentStream)};
  try {
    source.loader = std::make_unique<input::DataLoader>(source.dataset(), *source.pipeline, options);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    throw Error(fmt::format("out of memory for {} batches of batch_size {}; lower dataloader.batch_size or dataloader.prefetch",
                            options.prefetch + 1, options.batch_size));
  }
}

std::shared_ptr<models::Model> make_model(const config::Experiment& experiment, const at::Generator& dropout_generator,
                                          const Ranks& ranks) {
  const auto seed = mix_seed(static_cast<uint64_t>(experiment.seed), kInitStream);
  return models::model_registry().make(
      experiment.model.component,
      {.init_generator = at::make_generator<at::CPUGeneratorImpl>(seed),
       .dropout_generator = dropout_generator,
       .norm = experiment.distributed.sync_batch_norm ? nn::sync_batch_norm(ranks.batch_norm) : nn::local_batch_norm()});
}

void place_model(models::Model& model, const device::Placement& placement) {
  model.to(placement.device, placement.dtype);
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(placement.memory_format));
  }
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

// Throws one UsageError that lists what does not fit together.
void check_fit(const config::Experiment& experiment, const models::Model& model, const nn::Loss& loss) {
  std::vector<std::string> problems;
  const auto info = datasets::dataset_registry().make(experiment.dataset.component).info;
  const auto& data_name = experiment.dataset.component.name;
  if (loss.has_classes() != (info.num_classes > 0)) {
    problems.push_back(fmt::format("loss.name: {} needs {}, but {} gives {}", experiment.loss.component.name,
                                   loss.has_classes() ? "class labels" : "floating-point targets", data_name,
                                   loss.has_classes() ? "floating-point targets" : "class labels"));
  }
  const auto monitored = experiment.checkpoint.monitor;
  const bool needs_classes = monitored != config::Monitored::kAuto && monitored != config::Monitored::kLoss;
  if (needs_classes && !loss.has_classes()) {
    problems.push_back(
        fmt::format("checkpoint.monitor: {} has no classes to be right about; choose validation/loss", experiment.loss.component.name));
  }
  if (monitored == config::Monitored::kTop5 && info.num_classes < 5) {
    problems.push_back(fmt::format("checkpoint.monitor: validation/top5 needs five classes, but {} has {}; choose validation/top1",
                                   data_name, info.num_classes));
  }
  const int64_t num_targets = info.num_classes > 0 ? info.num_classes : info.num_targets;
  if (model.num_outputs() != num_targets) {
    problems.push_back(fmt::format("model: {} has {} outputs, but {} has {} {}", experiment.model.component.name, model.num_outputs(),
                                   data_name, num_targets, info.num_classes > 0 ? "classes" : "targets"));
  }
  const auto check_transforms = [&](const char* key, const std::vector<config::ComponentConfig>& transforms) {
    try {
      const auto shape = input::Pipeline(transforms, info, {}).output_shape();
      const bool fits =
          std::ranges::equal(model.input_shape(), shape, [](int64_t want, int64_t have) { return want == -1 || want == have; });
      if (!fits) {
        problems.push_back(fmt::format("model: {} takes samples of shape {}, but {} has {} after {}", experiment.model.component.name,
                                       shape_text(model.input_shape()), data_name, shape_text(shape), key));
      }
    } catch (const UsageError& error) {
      problems.push_back(fmt::format("{}: {}", key, error.what()));
    }
  };
  check_transforms("dataset.train_transforms", experiment.dataset.train_transforms);
  check_transforms("dataset.validation_transforms", experiment.dataset.validation_transforms);
  if (!problems.empty()) throw UsageError(join(problems, "\n"));
}

}  // namespace

Ranks make_ranks(distributed::ProcessGroups& groups) {
  std::vector<int> all(static_cast<size_t>(groups.world()->size()));
  std::iota(all.begin(), all.end(), 0);
  Ranks ranks{.world = groups.world()};
  if (const auto& activity = groups.world()->activity()) ranks.activity = activity;
  ranks.batch_norm = groups.new_group(all);
  ranks.control = groups.new_group(all);
  return ranks;
}

Parts build_parts(const config::Experiment& experiment, const device::Placement& placement, const Ranks& ranks) {
  Parts parts;
  parts.ranks = ranks;
  parts.placement = placement;
  parts.dropout_generator = at::globalContext().defaultGenerator(placement.device).clone();
  parts.model = make_model(experiment, parts.dropout_generator, ranks);
  parts.loss = nn::loss_registry().make(experiment.loss.component);
  check_fit(experiment, *parts.model, *parts.loss);
  if (!experiment.runtime.channels_last.value && !parts.model->prefers_channels_last()) {
    parts.placement.memory_format = torch::MemoryFormat::Contiguous;
  }
  place_model(*parts.model, parts.placement);
  parts.optimizer =
      optim::make_optimizer(experiment.optimizer.component, optim::group_parameters(*parts.model, experiment.optimizer.decay_norm_and_bias),
                            experiment.optimizer.skip_zero_grads);
  if (parts.optimizer->needs_second_pass() && experiment.training.accumulation_steps > 1) {
    throw UsageError(
        fmt::format("optimizer.name: {} goes over each batch twice, so it cannot join {} micro-steps; set "
                    "training.accumulation_steps: 1",
                    experiment.optimizer.component.name, experiment.training.accumulation_steps));
  }
  if (parts.placement.autocast_dtype == torch::kFloat16) {
    const auto& amp = experiment.amp;
    parts.grad_scaler.emplace(amp::GradScalerOptions{.init_scale = amp.init_scale,
                                                     .growth_factor = amp.growth_factor,
                                                     .backoff_factor = amp.backoff_factor,
                                                     .growth_interval = amp.growth_interval},
                              placement.device);
  }
  return parts;
}

void join_ranks(const config::Experiment& experiment, Parts& parts) {
  if (experiment.distributed.sync_batch_norm && parts.placement.device.is_cpu()) parts.ranks.batch_norm->share_memory(kStatisticsBytes);
  parts.data_parallel = std::make_unique<distributed::DataParallel>(*parts.model, parts.ranks.world, experiment.distributed);
  if (experiment.training.ema) parts.ema = std::make_unique<optim::Ema>(*parts.model, *experiment.training.ema);
  // Ranks that meet there in each step may agree there, too.
  if (parts.ranks.world->shares_memory()) parts.ranks.control->share_memory(distributed::HostExchange::kAlignment);
}

void open_data(const config::Experiment& experiment, Parts& parts, Logger& logger) {
  open_files(experiment, logger, parts.train, parts.validation);
  const auto& world = *parts.ranks.world;
  parts.plan = make_plan(experiment, parts.train.dataset().size(), world.size());
  parts.lr_factor = optim::make_lr_schedule(experiment.lr_scheduler, parts.plan.total_steps, parts.plan.steps_per_epoch);
  parts.sampler = std::make_unique<input::DistributedSampler>(input::SamplerOptions{.num_samples = parts.train.dataset().size(),
                                                                                    .rank = world.rank(),
                                                                                    .world_size = world.size(),
                                                                                    .shards = experiment.dataloader.shards,
                                                                                    .seed = static_cast<uint64_t>(experiment.seed)});
  make_loader(parts.train, experiment.dataset.train_transforms, parts.plan.batch_size, experiment, parts.placement);
  make_loader(parts.validation, experiment.dataset.validation_transforms, experiment.validation.batch_size, experiment, parts.placement);
}

}  // namespace trainer::engine
