#include "train/engine/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/option_error.h"

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
  loaded_epoch = part.epoch;
  train.batches->start_epoch(part.epoch, [&](int rank) { return share_of(rank, part, step); });
}

const data::Batch& Data::next() {
  const auto* batch = train.batches->next();
  if (batch == nullptr) throw std::logic_error(fmt::format("all training batches of epoch {} have been taken", loaded_epoch));
  return *batch;
}

double lr_at(const Parts& parts, const EpochPart& part, int64_t step) {
  return parts.optimizer->base_lr() * parts.lr_schedule(schedule_step_of(parts.plan, part, step));
}

std::vector<std::vector<int>> reading_groups(const std::optional<int64_t>& group_size, const std::vector<distributed::RankInfo>& ranks) {
  const auto& size = group_size;
  const auto world_size = static_cast<int>(ranks.size());
  if (size && world_size > 1 && world_size % *size != 0) {
    throw OptionError(
        "group_size",
        fmt::format("groups of {} processes do not divide {}; choose a divisor of the number of processes, or auto", *size, world_size));
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

std::shared_ptr<distributed::ProcessGroup> make_reading_group(Distribution distribution, const std::optional<int64_t>& group_size,
                                                              distributed::ProcessGroups& groups) {
  if (distribution == Distribution::kLocal) return nullptr;
  std::shared_ptr<distributed::ProcessGroup> mine;
  for (const auto& ranks : reading_groups(group_size, groups.ranks())) {
    if (ranks.size() == 1) continue;
    if (auto group = groups.new_cpu_group(ranks)) mine = std::move(group);
  }
  return mine;
}

}  // namespace trainer::engine
