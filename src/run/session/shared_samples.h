#pragma once
// How the ranks of a run open their data together.

#include <functional>

#include "distributed/startup_barrier.h"
#include "run/session/rank_context.h"
#include "train/engine/parts.h"

namespace trainer::session {

// Collective: calls `open`, which opens the samples of `data`, on each rank that reads them, first on one rank of each host, which
// downloads and copies what is missing. Tells the other ranks the number and the shape of the samples, without the names of the classes,
// which only rank 0 needs. Throws the errors of `open`, and those of require_same_data().
void open_together(RankContext& context, engine::Data& data, const std::function<void()>& open);

// Whether all ranks see the same data: a host can have an incomplete or an older copy at the same path.

// Collective, when the ranks that read the data have opened them: compares the shape and the classes, the number of samples, what is listed
// of each of them (Dataset::list), and the order of the first epoch, in which a sampler may use a file of the host. Throws DataError that
// names the first rank that differs from rank 0, its host and an example of the difference.
void require_same_data(distributed::StartupBarrier& barrier, const engine::Ranks& ranks, const engine::Data& data);

}  // namespace trainer::session
