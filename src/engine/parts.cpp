#include "engine/parts.h"

#include <fmt/format.h>

#include <numeric>
#include <stdexcept>

namespace trainer::engine {

Ranks make_ranks(distributed::ProcessGroups& groups, bool synchronises_statistics) {
  std::vector<int> all(static_cast<size_t>(groups.world()->size()));
  std::iota(all.begin(), all.end(), 0);
  Ranks ranks{.world = groups.world(), .infos = groups.ranks()};
  if (const auto& activity = groups.world()->activity()) ranks.activity = activity;
  if (synchronises_statistics) ranks.batch_norm = groups.new_group(all);
  ranks.control = groups.new_cpu_group(all);
  return ranks;
}

std::vector<int64_t> Data::indices_from(const EpochPart& part, int64_t step) {
  sampler->set_epoch(part.epoch);
  const auto indices = sampler->indices(part.first_sample);
  const auto first = samples_before_batch(plan, part, sampler->rank(), first_batch_of(plan, part, step));
  const auto end = samples_before_batch(plan, part, sampler->rank(), part.num_batches);
  return {indices.begin() + first, indices.begin() + end};
}

void Data::begin(const EpochPart& part, int64_t step) {
  epoch_ = part.epoch;
  std::vector<int64_t> batch_sizes;
  for (int64_t batch = first_batch_of(plan, part, step); batch < part.num_batches; ++batch) {
    batch_sizes.push_back(samples_before_batch(plan, part, sampler->rank(), batch + 1) -
                          samples_before_batch(plan, part, sampler->rank(), batch));
  }
  train.loader->start_epoch(part.epoch, indices_from(part, step), batch_sizes);
}

const input::Batch& Data::next() {
  const auto* batch = train.loader->next();
  if (batch == nullptr) throw std::logic_error(fmt::format("all training batches of epoch {} have been taken", epoch_));
  return *batch;
}

double lr_at(const Parts& parts, const EpochPart& part, int64_t step) {
  return parts.optimizer->base_lr() * parts.lr_schedule(schedule_step_of(parts.plan, part, step));
}

}  // namespace trainer::engine
