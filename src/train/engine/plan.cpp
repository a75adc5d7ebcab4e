#include "train/engine/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "data/sharded_sampler.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

constexpr int64_t kDefaultBatchSize = 128;

// The largest number of samples in a step, and of steps. Larger than in any real training, but small enough that sums of such numbers do
// not overflow.
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

// The option that sets the batch size.
const char* size_member(const PlanOptions& options) { return options.global_batch_size ? "global_batch_size" : "batch_size"; }

[[noreturn]] void refuse_step_size(const PlanOptions& options, int64_t batch_size, int world_size) {
  const int64_t micro_steps = options.accumulation_steps;
  throw OptionError(
      micro_steps > batch_size ? "accumulation_steps" : size_member(options),
      fmt::format(
          "a batch of {} samples x {} ranks x {} accumulation steps is more than the {} samples that a step may have; lower this value",
          batch_size, world_size, micro_steps, kMost));
}

// The number of samples in the batches of all ranks before batch number `batch` of an epoch. If a step cannot be divided equally among its
// micro-steps, the first ones have one more sample.
int64_t samples_before(const Plan& plan, int64_t batch) {
  const int64_t micro_steps = plan.accumulation_steps;
  const int64_t in_step = batch % micro_steps;
  return batch / micro_steps * plan.global_batch_size + in_step * (plan.global_batch_size / micro_steps) +
         std::min(in_step, plan.global_batch_size % micro_steps);
}

// The number of full batches in the first `count` samples; with `round_up`, an incomplete batch counts too.
int64_t batches_in(const Plan& plan, int64_t count, bool round_up) {
  const int64_t whole_steps = count / plan.global_batch_size;
  int64_t batches = whole_steps * plan.accumulation_steps;
  // Computed without a loop, because a step may have very many micro-steps.
  const int64_t left = count - whole_steps * plan.global_batch_size;
  const int64_t size = plan.global_batch_size / plan.accumulation_steps;
  const int64_t num_larger = plan.global_batch_size % plan.accumulation_steps;
  const int64_t in_larger = std::min(left / (size + 1), num_larger);
  batches += in_larger < num_larger ? in_larger : in_larger + (left - in_larger * (size + 1)) / size;
  return round_up && samples_before(plan, batches) < count ? batches + 1 : batches;
}

// The end (exclusive) of the positions of an epoch from `first` on.
int64_t end_of_epoch(const Plan& plan, int64_t first) {
  return data::end_of_order(plan.shards, plan.samples_per_epoch, plan.world_size, first);
}

// The number of batches from position `first` of an epoch to its end.
int64_t batches_from(const Plan& plan, int64_t first) {
  return batches_in(plan, end_of_epoch(plan, first) - first, /*round_up=*/!plan.drop_last);
}

int64_t total_steps_of(const PlanOptions& options, int64_t steps_per_epoch) {
  const auto& epochs = options.epochs;
  const auto& steps = options.steps;
  const auto total = steps ? product_of({*steps}) : product_of({epochs.value(), steps_per_epoch});
  if (total) return *total;
  throw OptionError(
      steps ? "steps" : "epochs",
      fmt::format("{} more than {} steps; lower this value, and limit the time of a run with training.max_minutes",
                  steps ? fmt::format("{} is", *steps) : fmt::format("{} epochs of {} steps are", *epochs, steps_per_epoch), kMost));
}

}  // namespace

int64_t global_batch_size(const PlanOptions& options, int world_size) {
  if (options.global_batch_size) {
    if (*options.global_batch_size > kMost) refuse_step_size(options, ceil_div(*options.global_batch_size, world_size), world_size);
    return *options.global_batch_size;
  }
  const int64_t batch_size = options.batch_size.value_or(kDefaultBatchSize);
  const auto product = product_of({batch_size, world_size, options.accumulation_steps});
  if (!product) refuse_step_size(options, batch_size, world_size);
  return *product;
}

Plan make_plan(const PlanOptions& options, int64_t samples_per_epoch, int world_size) {
  Plan plan;
  plan.world_size = world_size;
  plan.samples_per_epoch = samples_per_epoch;
  plan.shards = options.shards;
  plan.drop_last = options.drop_last;
  plan.accumulation_steps = options.accumulation_steps;
  plan.global_batch_size = global_batch_size(options, world_size);
  plan.batch_size = ceil_div(ceil_div(plan.global_batch_size, plan.accumulation_steps), world_size);
  plan.batches_per_epoch = batches_from(plan, 0);
  plan.steps_per_epoch = ceil_div(plan.batches_per_epoch, plan.accumulation_steps);
  if (plan.batches_per_epoch == 0) {
    if (plan.shards == data::Shards::kDrop && end_of_epoch(plan, 0) == 0) {
      throw OptionError("shards",
                        fmt::format("drop leaves no sample for an epoch, because {} training samples are fewer than the {} ranks; choose "
                                    "pad, which repeats samples, or exact",
                                    samples_per_epoch, world_size));
    }
    const bool is_global = options.global_batch_size.has_value();
    const auto ranks = world_size == 1 || is_global ? "" : fmt::format(" on each of {} ranks", world_size);
    const auto size = is_global ? ceil_div(plan.global_batch_size, plan.accumulation_steps) : plan.batch_size;
    throw OptionError(size_member(options),
                      fmt::format("{} training samples are fewer than one batch of {}{}; {}set dataloader.drop_last: false",
                                  samples_per_epoch, size, ranks, size > 1 ? fmt::format("lower {}, or ", size_member(options)) : ""));
  }
  plan.num_epochs = options.epochs;
  plan.total_steps = total_steps_of(options, plan.steps_per_epoch);
  plan.size_schedule = options.size_schedule;
  return plan;
}

std::vector<int64_t> scaled_shape(const std::vector<int64_t>& shape, int64_t size) {
  const auto shorter = std::min(shape.at(1), shape.at(2));
  return {shape[0], size * shape[1] / shorter, size * shape[2] / shorter};
}

void check_size_schedule(const PlanOptions& options, const std::vector<int64_t>& shape, bool has_masks) {
  if (options.size_schedule.empty()) return;
  const auto refuse = [](const std::string& problem) { throw OptionError("size_schedule", problem); };
  if (!options.epochs) refuse("needs training.epochs instead of training.steps");
  if (shape.size() != 3) refuse(fmt::format("needs images, but the samples have the shape {}; remove it", fmt::join(shape, "x")));
  if (has_masks) refuse("needs a target for each image instead of a mask; remove it");
  const auto full = std::min(shape[1], shape[2]);
  SmallerImages previous;
  for (const auto& item : options.size_schedule) {
    if (item.size <= previous.size || item.until <= previous.until) {
      refuse(fmt::format("size {} until {} after size {} until {} is not an increase of both; increase both from item to item", item.size,
                         item.until, previous.size, previous.until));
    }
    if (item.size >= full) {
      refuse(fmt::format("{} pixels are not less than the shorter edge of the images after their transforms, {}; choose a smaller size",
                         item.size, full));
    }
    previous = item;
  }
}

int64_t Plan::num_epochs_until(const SmallerImages& item) const {
  // 0.7 * 10 must not be less than 7.
  constexpr double kRounding = 1e-9;
  return static_cast<int64_t>(item.until * static_cast<double>(num_epochs.value_or(0)) + kRounding);
}

int64_t Plan::image_size_in(int64_t epoch) const {
  for (const auto& item : size_schedule) {
    if (epoch < num_epochs_until(item)) return item.size;
  }
  return 0;
}

EpochPart rest_of_epoch(const Plan& plan, int64_t epoch, int64_t next_step, int64_t num_taken) {
  EpochPart part{.epoch = epoch, .first_step = next_step, .first_sample = num_taken};
  part.first_step_in_epoch = ceil_div(num_taken, plan.global_batch_size);
  part.end_sample = end_of_epoch(plan, num_taken);
  part.num_batches = batches_from(plan, num_taken);
  part.num_steps = ceil_div(part.num_batches, plan.accumulation_steps);
  if (plan.num_epochs) {
    part.num_epochs = *plan.num_epochs;
    return part;
  }
  const int64_t num_left = std::max<int64_t>(plan.total_steps - next_step, 0);
  part.ends_epoch = part.num_steps <= num_left;
  part.num_steps = std::min(part.num_steps, num_left);
  part.num_batches = std::min(part.num_batches, part.num_steps * plan.accumulation_steps);
  part.num_epochs = epoch + 1 + ceil_div(num_left - part.num_steps, plan.steps_per_epoch);
  return part;
}

int64_t samples_before_batch(const Plan& plan, const EpochPart& part, int rank, int64_t batch) {
  const auto num_positions = std::min(samples_before(plan, batch), part.end_sample - part.first_sample);
  // The rank takes every world_size-th position, starting at position `rank`.
  return num_positions > rank ? ceil_div(num_positions - rank, plan.world_size) : 0;
}

int64_t first_batch_of(const Plan& plan, const EpochPart& part, int64_t step) {
  return std::min((step - part.first_step) * plan.accumulation_steps, part.num_batches);
}

int64_t end_sample_of(const Plan& plan, const EpochPart& part, int64_t step) {
  return std::min(part.first_sample + samples_before(plan, first_batch_of(plan, part, step + 1)), part.end_sample);
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
                           .stream = number * plan.world_size + rank,
                           .epoch = part.epoch});
  }
  return micro_steps;
}

int64_t schedule_step_of(const Plan& plan, const EpochPart& part, int64_t step) {
  if (!plan.num_epochs) return step;
  return part.epoch * plan.steps_per_epoch + part.first_step_in_epoch + step - part.first_step;
}

int64_t steps_left(const Plan& plan, const EpochPart& part, int64_t step) { return plan.total_steps - schedule_step_of(plan, part, step); }

}  // namespace trainer::engine
