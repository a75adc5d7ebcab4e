#include "engine/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "base/error.h"
#include "input/distributed_sampler.h"

namespace trainer::engine {
namespace {

constexpr int64_t kDefaultBatchSize = 128;

// More samples in a step, or more steps, than any training has. Sums of such numbers do not overflow.
constexpr int64_t kMost = int64_t{1} << 50;

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The product of numbers of at least 1; empty if it is more than kMost.
std::optional<int64_t> product_of(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product) || product > kMost) return std::nullopt;
  }
  return product;
}

// The place of the key that sets the size of a batch.
std::string place_of_batch_size(const config::Experiment& experiment) {
  return experiment.place_of(experiment.dataloader.global_batch_size ? "dataloader.global_batch_size" : "dataloader.batch_size");
}

[[noreturn]] void refuse_step_size(const config::Experiment& experiment, int64_t batch_size, int world_size) {
  const int64_t micro_steps = experiment.training.accumulation_steps;
  const auto place = micro_steps > batch_size ? experiment.place_of("training.accumulation_steps") : place_of_batch_size(experiment);
  throw UsageError(
      fmt::format("{}: batches of {} x {} ranks x training.accumulation_steps = {} are more than {} samples in a step; lower it", place,
                  batch_size, world_size, micro_steps, kMost));
}

int64_t batch_size_of(const config::Experiment& experiment, int world_size) {
  const auto& loader = experiment.dataloader;
  if (!loader.global_batch_size) return loader.batch_size.value_or(kDefaultBatchSize);
  const auto product = product_of({world_size, experiment.training.accumulation_steps});
  if (!product) refuse_step_size(experiment, 1, world_size);
  const int64_t num_parts = *product;
  if (*loader.global_batch_size % num_parts != 0) {
    throw UsageError(
        fmt::format("{}: {} cannot be divided among {} ranks x training.accumulation_steps = {}; choose "
                    "a multiple of {}",
                    experiment.place_of("dataloader.global_batch_size"), *loader.global_batch_size, world_size,
                    experiment.training.accumulation_steps, num_parts));
  }
  return *loader.global_batch_size / num_parts;
}

int64_t joined_batch_size(const Plan& plan) { return plan.batch_size * plan.world_size; }

}  // namespace

Plan make_plan(const config::Experiment& experiment, int64_t num_train, int world_size) {
  Plan plan;
  plan.world_size = world_size;
  plan.num_train = num_train;
  plan.shards = experiment.dataloader.shards;
  plan.drop_last = experiment.dataloader.drop_last;
  plan.accumulation_steps = experiment.training.accumulation_steps;
  plan.batch_size = batch_size_of(experiment, world_size);
  const auto global_batch_size = product_of({plan.batch_size, world_size, plan.accumulation_steps});
  if (!global_batch_size) refuse_step_size(experiment, plan.batch_size, world_size);
  plan.global_batch_size = *global_batch_size;
  const auto epoch = rest_of_epoch(plan, 0);
  plan.batches_per_epoch = epoch.num_batches;
  plan.steps_per_epoch = epoch.num_steps;
  if (plan.batches_per_epoch == 0) {
    const auto ranks = world_size == 1 ? "" : fmt::format(" on each of {} ranks", world_size);
    throw UsageError(fmt::format("{}: {} training images are fewer than one batch of {}{}; lower it, or set dataloader.drop_last: false",
                                 place_of_batch_size(experiment), num_train, plan.batch_size, ranks));
  }
  plan.num_epochs = experiment.training.epochs;
  const auto total_steps = product_of({plan.num_epochs, plan.steps_per_epoch});
  if (!total_steps) {
    throw UsageError(
        fmt::format("{}: {} epochs of {} steps are more than {} steps; lower it, and limit the time of a run with "
                    "training.max_minutes",
                    experiment.place_of("training.epochs"), plan.num_epochs, plan.steps_per_epoch, kMost));
  }
  plan.total_steps = *total_steps;
  return plan;
}

EpochPart rest_of_epoch(const Plan& plan, int64_t epoch, int64_t next_step, int64_t num_taken) {
  EpochPart part{.epoch = epoch, .first_step = next_step, .first_sample = num_taken};
  part.first_step_in_epoch = ceil_div(num_taken, plan.global_batch_size);
  part.end_sample = input::end_of_order(plan.shards, plan.num_train, plan.world_size, num_taken);
  const int64_t num_left = part.end_sample - num_taken;
  part.num_batches = plan.drop_last ? num_left / joined_batch_size(plan) : ceil_div(num_left, joined_batch_size(plan));
  part.num_steps = ceil_div(part.num_batches, plan.accumulation_steps);
  return part;
}

int64_t first_batch_of(const Plan& plan, const EpochPart& part, int64_t step) {
  return std::min((step - part.first_step) * plan.accumulation_steps, part.num_batches);
}

int64_t end_sample_of(const Plan& plan, const EpochPart& part, int64_t step) {
  return std::min(part.first_sample + first_batch_of(plan, part, step + 1) * joined_batch_size(plan), part.end_sample);
}

int64_t samples_in_step(const Plan& plan, const EpochPart& part, int64_t step) {
  return end_sample_of(plan, part, step) - end_sample_of(plan, part, step - 1);
}

std::vector<MicroStep> micro_steps_of(const Plan& plan, const EpochPart& part, int rank, int64_t step) {
  const int64_t count = first_batch_of(plan, part, step + 1) - first_batch_of(plan, part, step);
  std::vector<MicroStep> micro_steps;
  for (int64_t number = 0; number < count; ++number) {
    micro_steps.push_back({.step = step,
                           .number = number,
                           .count = count,
                           .num_group_samples = samples_in_step(plan, part, step),
                           .stream = number * plan.world_size + rank});
  }
  return micro_steps;
}

int64_t schedule_step_of(const Plan& plan, const EpochPart& part, int64_t step) {
  return part.epoch * plan.steps_per_epoch + part.first_step_in_epoch + step - part.first_step;
}

}  // namespace trainer::engine
