#include "engine/reading_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/option_error.h"

namespace trainer::engine {

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
