#include "train/engine/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/text.h"
#include "distributed/shared_memory.h"
#include "inference/place_model.h"
#include "nn/batch_norm.h"
#include "train/engine/failure_message.h"
#include "trainer/error.h"
#include "trainer/nn.h"
#include "trainer/random.h"

namespace trainer::engine {

namespace {

// Batch normalisation sends two values of 8 bytes for each channel and a count; this is enough for the widest layers.
constexpr int64_t kStatisticsBytes = 256 * 1024;

// Collective over all ranks. Returns the group whose first rank reads samples for this one; null if this rank reads its own samples: with
// Distribution::kLocal, or when it is alone in its group.
std::shared_ptr<distributed::ProcessGroup> make_reading_group(const RankOptions& options, distributed::ProcessGroups& groups) {
  if (options.distribution == Distribution::kLocal) return nullptr;
  std::shared_ptr<distributed::ProcessGroup> mine;
  for (const auto& ranks : reading_groups(options.group_size, groups.ranks())) {
    if (ranks.size() == 1) continue;
    if (auto group = groups.new_group(ranks, torch::kCPU)) mine = std::move(group);
  }
  return mine;
}

}  // namespace

Ranks make_ranks(distributed::ProcessGroups& groups, const RankOptions& options) {
  std::vector<int> all(static_cast<size_t>(groups.world()->size()));
  std::iota(all.begin(), all.end(), 0);
  Ranks ranks{.world = groups.world(), .infos = groups.ranks()};
  if (const auto& activity = groups.world()->activity()) ranks.activity = activity;
  if (options.synchronises_statistics) ranks.batch_norm = groups.new_group(all);
  ranks.control = groups.new_group(all, torch::kCPU);
  ranks.reading = make_reading_group(options, groups);
  return ranks;
}

uint64_t augmentation_seed(uint64_t seed) { return mix_seed(seed, kAugmentStream); }

data::Pipeline make_pipeline(const std::vector<ComponentConfig>& transforms, const data::DatasetInfo& info,
                             const device::Placement& placement) {
  const bool channels_last = info.shape.size() == 3 && placement.memory_format == torch::MemoryFormat::ChannelsLast;
  return {transforms, info, {placement.input_dtype, channels_last}};
}

DataSource::DataSource(Samples those, const SourceOptions& options, int64_t batch_size, const device::Placement& placement,
                       const Ranks& ranks)
    : samples(std::move(those)), pipeline(make_pipeline(options.transforms, samples.info(), placement)), on_device(placement.device) {
  data::LoaderOptions of_batches{.batch_size = batch_size,
                                 .num_workers = options.loading.num_workers,
                                 .prefetch = options.loading.prefetch,
                                 .pin_memory = placement.pin_memory,
                                 .target_dtype = placement.dtype,
                                 .seed = augmentation_seed(options.seed),
                                 .report_skipped = options.report_skipped};
  // Only copies from pinned memory are asynchronous; from other memory, the driver copies before it returns.
  if (!placement.device.is_cpu() && placement.pin_memory) {
    of_batches.make_copy_event = [device = placement.device, activity = ranks.activity] {
      return std::make_unique<DeviceCopyEvent>(device, activity);
    };
  }
  const auto& group = ranks.reading;
  auto of_loader = of_batches;
  if (group) {
    of_loader.prefetch *= group->size();
    // SharedBatches copies the loader's batches into messages before the device gets them, so only the messages need pinned memory and copy
    // events.
    of_loader.pin_memory = false;
    of_loader.make_copy_event = {};
  }
  try {
    std::unique_ptr<data::DataLoader> loader;
    if (ranks.reads_data()) loader = std::make_unique<data::DataLoader>(samples.dataset(), pipeline, of_loader);
    if (group) {
      const auto format = data::make_batch_tensors(samples.info(), pipeline, of_batches, torch::kMeta);
      batches = std::make_unique<SharedBatches>(group, options.distribution, format, of_batches, std::move(loader));
    } else {
      batches = std::make_unique<LocalBatches>(std::move(loader), ranks.world->rank());
    }
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    throw Error(
        fmt::format("out of memory for {} of batch_size {}; lower dataloader.prefetch or the batch size (dataloader.batch_size, "
                    "dataloader.global_batch_size or validation.batch_size)",
                    counted(data::num_buffers(of_loader.num_workers, of_loader.prefetch), "batch", "batches"), batch_size));
  }
}

TrainingSamples make_training_samples(OpenedSamples samples, data::Sampler sampler, data::Shards shards, const Ranks& ranks) {
  const auto samples_per_epoch = sampler.num_samples;
  const data::ShardOptions options{.rank = ranks.world->rank(), .world_size = ranks.world->size(), .shards = shards};
  return {std::move(samples), data::ShardedSampler(std::move(sampler), options), samples_per_epoch};
}

Data::Data(TrainingSamples samples, const DataOptions& options, const device::Placement& placement, const Ranks& ranks)
    : plan(make_plan(options.plan, samples.samples_per_epoch, ranks.world->size())),
      train(std::move(samples.opened.train), options.train, std::min(plan.batch_size, samples.samples_per_epoch), placement, ranks),
      sampler(std::move(samples.sampler)) {
  check_size_schedule(options.plan, train.pipeline.output_shape(), train.samples.info().has_masks);
  if (auto& held_out = samples.opened.validation) {
    const auto batch_size = std::min(options.validation_batch_size, held_out->size());
    validation.emplace(std::move(*held_out), options.validation, batch_size, placement, ranks);
  }
  if (options.batch_transforms.empty()) return;
  num_unmixed_epochs = options.num_unmixed_epochs;
  batch_mixer = std::make_unique<data::BatchMixer>(options.batch_transforms, train.samples.info().num_classes,
                                                   mix_seed(options.train.seed, kBatchMixStream));
}

RankShard Data::shard_for(int rank, const EpochPart& part, int64_t step) {
  sampler->set_epoch(part.epoch);
  const auto samples = sampler->samples_of(rank, part.first_sample);
  const auto num_before = [&](int64_t batch) { return samples_before_batch(plan, part, rank, batch); };
  const int64_t first = first_batch_of(plan, part, step);
  RankShard shard{.samples = samples.slice(num_before(first), num_before(part.num_batches)), .batch_sizes = {}};
  for (int64_t batch = first; batch < part.num_batches; ++batch) shard.batch_sizes.push_back(num_before(batch + 1) - num_before(batch));
  return shard;
}

void Data::begin(const EpochPart& part, int64_t step) {
  loaded_epoch = part.epoch;
  train.batches->start_epoch(part.epoch, [&](int rank) { return shard_for(rank, part, step); });
}

const data::Batch& Data::next() {
  const auto* batch = train.batches->next();
  if (batch == nullptr) throw std::logic_error(fmt::format("all training batches of epoch {} have been taken", loaded_epoch));
  return *batch;
}

namespace {

std::shared_ptr<models::Model> build_model(const MakeModel& make_model, const at::Generator& dropout_generator,
                                           const NetworkOptions& options, const Ranks& ranks) {
  const auto seed = mix_seed(options.seed, kInitStream);
  // LibTorch's own layers use the default generator.
  torch::manual_seed(seed);
  auto model = make_model({.init_generator = at::make_generator<at::CPUGeneratorImpl>(seed),
                           .dropout_generator = dropout_generator,
                           .norm = nn::batch_norms(options.sync_batch_norm ? ranks.batch_norm : nullptr)});
  if (model == nullptr) throw UsageError("the function that makes the network returned null");
  if (options.sync_batch_norm) nn::convert_sync_batch_norm(*model, ranks.batch_norm);
  return model;
}

}  // namespace

Network::Network(const MakeModel& make_model, const MakeTask& make_task, const MakeOptimizer& make_optimizer, const NetworkOptions& options,
                 const device::Placement& of_run, const Ranks& ranks)
    : dropout_generator(at::globalContext().defaultGenerator(of_run.device).clone()),
      model(build_model(make_model, dropout_generator, options, ranks)),
      task(make_task()) {
  placement = inference::placement_for(*model, of_run);
  inference::place_model(*model, placement);
  const auto& of_parameters = options.parameters;
  const auto group = [&] {
    return optim::group_parameters(*model, of_parameters.decay_norm_and_bias, of_parameters.groups, of_parameters.layer_decay);
  };
  // Parameters that are frozen only at first belong to the optimizer too, so in this case, the groups are formed before freezing.
  std::vector<optim::ParamGroup> groups;
  if (of_parameters.unfreeze_after) groups = group();
  auto frozen = freeze(of_parameters, *model, options.name, options.place_of);
  if (of_parameters.unfreeze_after) {
    frozen_at_first = {.num_epochs = *of_parameters.unfreeze_after, .parameters = std::move(frozen)};
  } else {
    groups = group();
  }
  optimizer = make_optimizer(std::move(groups));
  if (task == nullptr || optimizer == nullptr) throw UsageError("the function that makes the task or the optimizer returned null");
  if (placement.autocast_dtype == torch::kFloat16) grad_scaler.emplace(options.grad_scaler, placement.device);
}

Parts::Parts(Network made, Data of_run, optim::LrSchedule schedule, Ranks those, const distributed::DataParallelOptions& options,
             const std::optional<optim::EmaOptions>& ema_options)
    : network(std::move(made)),
      data(std::move(of_run)),
      lr_schedule(std::move(schedule)),
      ranks(std::move(those)),
      data_parallel_options(options) {
  if (network.placement.device.is_cpu() && ranks.batch_norm != ranks.world) ranks.batch_norm->share_memory(kStatisticsBytes);
  data_parallel_options.broadcast_buffers = options.broadcast_buffers && !nn::has_equal_buffers(*network.model);
  make_data_parallel();
  if (ema_options) ema = std::make_unique<optim::Ema>(*network.model, *ema_options);
  // If the gradients of each step are summed in shared memory, the flags of stop requests are too.
  if (ranks.world->shares_memory()) ranks.control->share_memory(distributed::SharedMemory::kAlignment);
}

void Parts::make_data_parallel() {
  // The hooks on the gradients must be removed before new ones are added.
  data_parallel.reset();
  data_parallel = std::make_unique<distributed::DataParallel>(*network.model, ranks.world, data_parallel_options);
}

double lr_at(const Parts& parts, const EpochPart& part, int64_t step) {
  return parts.network.optimizer->base_lr() * parts.lr_schedule(schedule_step_of(parts.data.plan, part, step));
}

std::vector<std::vector<int>> reading_groups(const std::optional<int64_t>& group_size, const std::vector<distributed::RankInfo>& ranks) {
  const auto& size = group_size;
  const auto world_size = static_cast<int>(ranks.size());
  if (size && world_size > 1 && world_size % *size != 0) {
    throw OptionError("group_size",
                      fmt::format("{} processes cannot be divided into groups of {}; choose a divisor of the number of processes, or auto",
                                  world_size, *size));
  }
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto is_theirs = [&](const std::vector<int>& group) {
      if (size) return group.front() / *size == rank / *size;
      return distributed::same_host(ranks[static_cast<size_t>(group.front())], ranks[static_cast<size_t>(rank)]);
    };
    const auto found = std::ranges::find_if(groups, is_theirs);
    if (found == groups.end()) {
      groups.push_back({rank});
    } else {
      found->push_back(rank);
    }
  }
  return groups;
}

}  // namespace trainer::engine
