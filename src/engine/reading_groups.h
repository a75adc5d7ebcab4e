#pragma once
// The groups of ranks in which one rank reads the data for all (dataset.distribution).

#include <memory>
#include <vector>

#include "config/experiment.h"
#include "distributed/process_groups.h"

namespace trainer::engine {

// Each rank of the run is in one group; groups and their ranks are ascending, and the first rank of a group reads. `ranks`: of the run, by
// rank. Throws UsageError if the groups that the configuration asks for do not divide them.
std::vector<std::vector<int>> reading_groups(const config::Experiment& experiment, const std::vector<distributed::RankInfo>& ranks);

// Collective over all ranks: the group of this rank. Null if it reads its own samples: under dataset.distribution: local, or alone in its
// group.
std::shared_ptr<distributed::ProcessGroup> make_reading_group(const config::Experiment& experiment, distributed::ProcessGroups& groups);

}  // namespace trainer::engine
