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

RankShare Data::share_of(int rank, const EpochPart& part, int64_t step) {
  sampler->set_epoch(part.epoch);
  const auto samples = sampler->samples_of(rank, part.first_sample);
  const auto num_before = [&](int64_t batch) { return samples_before_batch(plan, part, rank, batch); };
  const int64_t first = first_batch_of(plan, part, step);
  RankShare share{.samples = samples.slice(num_before(first), num_before(part.num_batches)), .batch_sizes = {}};
  for (int64_t batch = first; batch < part.num_batches; ++batch) share.batch_sizes.push_back(num_before(batch + 1) - num_before(batch));
  return share;
}

void Data::begin(const EpochPart& part, int64_t step) {
  epoch_ = part.epoch;
  train.batches->start_epoch(part.epoch, [&](int rank) { return share_of(rank, part, step); });
}

const data::Batch& Data::next() {
  const auto* batch = train.batches->next();
  if (batch == nullptr) throw std::logic_error(fmt::format("all training batches of epoch {} have been taken", epoch_));
  return *batch;
}

double lr_at(const Parts& parts, const EpochPart& part, int64_t step) {
  return parts.optimizer->base_lr() * parts.lr_schedule(schedule_step_of(parts.plan, part, step));
}

}  // namespace trainer::engine
