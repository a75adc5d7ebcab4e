#include "engine/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace trainer::engine {
namespace {

constexpr int64_t kDefaultBatchSize = 128;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Plan make_plan(const config::Experiment& experiment, int64_t num_train) {
  const auto& loader = experiment.dataloader;
  Plan plan;
  plan.num_train = num_train;
  plan.accumulation_steps = experiment.training.accumulation_steps;
  plan.batch_size =
      loader.global_batch_size ? *loader.global_batch_size / plan.accumulation_steps : loader.batch_size.value_or(kDefaultBatchSize);
  plan.global_batch_size = plan.batch_size * plan.accumulation_steps;
  plan.batches_per_epoch = loader.drop_last ? num_train / plan.batch_size : ceil_div(num_train, plan.batch_size);
  if (plan.batches_per_epoch == 0) {
    throw UsageError(
        fmt::format("dataloader.batch_size: {} training images make no batch of {}; lower it, or set dataloader.drop_last: false",
                    num_train, plan.batch_size));
  }
  plan.steps_per_epoch = ceil_div(plan.batches_per_epoch, plan.accumulation_steps);
  plan.num_epochs = experiment.training.epochs;
  plan.total_steps = plan.num_epochs * plan.steps_per_epoch;
  return plan;
}

int64_t samples_in_group(const Plan& plan, int64_t first_batch) {
  const int64_t end_batch = std::min(first_batch + plan.accumulation_steps, plan.batches_per_epoch);
  return std::min(end_batch * plan.batch_size, plan.num_train) - first_batch * plan.batch_size;
}

}  // namespace trainer::engine
