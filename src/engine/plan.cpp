#include "engine/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace trainer::engine {
namespace {

constexpr int64_t kDefaultBatchSize = 128;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t batch_size_of(const config::Experiment& experiment, int world_size) {
  const auto& loader = experiment.dataloader;
  if (!loader.global_batch_size) return loader.batch_size.value_or(kDefaultBatchSize);
  const int64_t num_parts = world_size * experiment.training.accumulation_steps;
  if (*loader.global_batch_size % num_parts != 0) {
    throw UsageError(
        fmt::format("dataloader.global_batch_size: {} cannot be shared by {} ranks x training.accumulation_steps = {}; choose "
                    "a multiple of {}",
                    *loader.global_batch_size, world_size, experiment.training.accumulation_steps, num_parts));
  }
  return *loader.global_batch_size / num_parts;
}

int64_t num_shared(config::Shards shards, int64_t num_train, int64_t world_size) {
  switch (shards) {
    case config::Shards::kPad:
      return ceil_div(num_train, world_size) * world_size;
    case config::Shards::kDrop:
      return num_train / world_size * world_size;
    case config::Shards::kExact:
      return num_train;
  }
  return num_train;
}

}  // namespace

Plan make_plan(const config::Experiment& experiment, int64_t num_train, int world_size) {
  Plan plan;
  plan.world_size = world_size;
  plan.num_train = num_train;
  plan.num_shared = num_shared(experiment.dataloader.shards, num_train, world_size);
  plan.accumulation_steps = experiment.training.accumulation_steps;
  plan.batch_size = batch_size_of(experiment, world_size);
  plan.global_batch_size = plan.batch_size * world_size * plan.accumulation_steps;
  const int64_t joined_batch_size = plan.batch_size * world_size;
  plan.batches_per_epoch =
      experiment.dataloader.drop_last ? plan.num_shared / joined_batch_size : ceil_div(plan.num_shared, joined_batch_size);
  if (plan.batches_per_epoch == 0) {
    const auto ranks = world_size == 1 ? "" : fmt::format(" on each of {} ranks", world_size);
    throw UsageError(
        fmt::format("dataloader.batch_size: {} training images make no batch of {}{}; lower it, or set dataloader.drop_last: false",
                    num_train, plan.batch_size, ranks));
  }
  plan.steps_per_epoch = ceil_div(plan.batches_per_epoch, plan.accumulation_steps);
  plan.num_epochs = experiment.training.epochs;
  plan.total_steps = plan.num_epochs * plan.steps_per_epoch;
  return plan;
}

int64_t first_batch_of(const Plan& plan, int64_t step) { return step % plan.steps_per_epoch * plan.accumulation_steps; }

int64_t samples_in_group(const Plan& plan, int64_t first_batch) {
  const int64_t end_batch = std::min(first_batch + plan.accumulation_steps, plan.batches_per_epoch);
  const int64_t joined_batch_size = plan.batch_size * plan.world_size;
  return std::min(end_batch * joined_batch_size, plan.num_shared) - first_batch * joined_batch_size;
}

std::vector<MicroStep> micro_steps_of(const Plan& plan, int rank, int64_t step) {
  const int64_t first_batch = first_batch_of(plan, step);
  const int64_t count = std::min(plan.accumulation_steps, plan.batches_per_epoch - first_batch);
  std::vector<MicroStep> micro_steps;
  for (int64_t number = 0; number < count; ++number) {
    micro_steps.push_back({.step = step,
                           .number = number,
                           .count = count,
                           .num_group_samples = samples_in_group(plan, first_batch),
                           .stream = number * plan.world_size + rank});
  }
  return micro_steps;
}

}  // namespace trainer::engine
