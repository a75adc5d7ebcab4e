// The data of a run: files, transforms, loaders, and the plan that follows from their size.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "datasets/registry.h"
#include "engine/out_of_memory.h"
#include "session/build.h"
#include "session/random_streams.h"

namespace trainer::session {
namespace {

using engine::DataSource;

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
  train.subset = std::make_unique<input::Subset>(*train.files, rest);
  validation.subset = std::make_unique<input::Subset>(*validation.files, held_out);
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
    if (!engine::is_out_of_memory(error)) throw;
    throw Error(fmt::format("out of memory for {} batches of batch_size {}; lower dataloader.batch_size or dataloader.prefetch",
                            options.prefetch + 1, options.batch_size));
  }
}

}  // namespace

engine::Data open_data(const config::Experiment& experiment, const device::Placement& placement, const distributed::ProcessGroup& world,
                       Logger& logger) {
  engine::Data data;
  open_files(experiment, logger, data.train, data.validation);
  data.plan = engine::make_plan(experiment, data.train.dataset().size(), world.size());
  data.lr_factor = optim::make_lr_schedule(experiment.lr_scheduler, data.plan.total_steps, data.plan.steps_per_epoch);
  data.sampler = std::make_unique<input::DistributedSampler>(input::SamplerOptions{.num_samples = data.train.dataset().size(),
                                                                                   .rank = world.rank(),
                                                                                   .world_size = world.size(),
                                                                                   .shards = experiment.dataloader.shards,
                                                                                   .seed = static_cast<uint64_t>(experiment.seed)});
  make_loader(data.train, experiment.dataset.train_transforms, data.plan.batch_size, experiment, placement);
  make_loader(data.validation, experiment.dataset.validation_transforms, experiment.validation.batch_size, experiment, placement);
  return data;
}

}  // namespace trainer::session
