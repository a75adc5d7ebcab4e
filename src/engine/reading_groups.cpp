#include "engine/reading_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace trainer::engine {

std::vector<std::vector<int>> reading_groups(const config::Experiment& experiment, const std::vector<distributed::RankInfo>& ranks) {
  const auto size = experiment.dataset.distribution_group_size.value;
  const auto world_size = static_cast<int>(ranks.size());
  if (size && world_size > 1 && world_size % *size != 0) {
    throw UsageError(fmt::format("{}: groups of {} processes do not divide {}; choose a divisor of the number of processes, or auto",
                                 experiment.place_of("dataset.distribution_group_size"), *size, world_size));
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

std::shared_ptr<distributed::ProcessGroup> make_reading_group(const config::Experiment& experiment, distributed::ProcessGroups& groups) {
  if (experiment.dataset.distribution == config::Distribution::kLocal) return nullptr;
  std::shared_ptr<distributed::ProcessGroup> mine;
  for (const auto& ranks : reading_groups(experiment, groups.ranks())) {
    if (ranks.size() == 1) continue;
    if (auto group = groups.new_cpu_group(ranks)) mine = std::move(group);
  }
  return mine;
}

}  // namespace trainer::engine
