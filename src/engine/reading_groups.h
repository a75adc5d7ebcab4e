#pragma once
// The groups of ranks in which one rank reads the data for all (dataset.distribution).

#include <memory>
#include <optional>
#include <vector>

#include "distributed/process_groups.h"
#include "engine/options.h"

namespace trainer::engine {

// Each rank of the run is in one group; groups and their ranks are ascending, and the first rank of a group reads. `ranks`: of the run, by
// rank. `group_size`: of consecutive ranks; not set: those of each host. Throws OptionError if it does not divide their number.
std::vector<std::vector<int>> reading_groups(const std::optional<int64_t>& group_size, const std::vector<distributed::RankInfo>& ranks);

// Collective over all ranks: the group of this rank. Null if it reads its own samples: with Distribution::kLocal, or alone in its
// group.
std::shared_ptr<distributed::ProcessGroup> make_reading_group(Distribution distribution, const std::optional<int64_t>& group_size,
                                                              distributed::ProcessGroups& groups);

}  // namespace trainer::engine
