#include "engine/ranks.h"

#include <numeric>

namespace trainer::engine {

Ranks make_ranks(distributed::ProcessGroups& groups) {
  std::vector<int> all(static_cast<size_t>(groups.world()->size()));
  std::iota(all.begin(), all.end(), 0);
  Ranks ranks{.world = groups.world(), .infos = groups.ranks()};
  if (const auto& activity = groups.world()->activity()) ranks.activity = activity;
  ranks.batch_norm = groups.new_group(all);
  ranks.control = groups.new_group(all);
  return ranks;
}

}  // namespace trainer::engine
