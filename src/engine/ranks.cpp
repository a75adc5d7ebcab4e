#include "engine/ranks.h"

#include <numeric>
#include <vector>

namespace trainer::engine {

Ranks make_ranks(distributed::ProcessGroups& groups) {
  std::vector<int> all(static_cast<size_t>(groups.world()->size()));
  std::iota(all.begin(), all.end(), 0);
  Ranks ranks{.world = groups.world()};
  if (const auto& activity = groups.world()->activity()) ranks.activity = activity;
  ranks.batch_norm = groups.new_group(all);
  ranks.control = groups.new_group(all);
  return ranks;
}

}  // namespace trainer::engine
