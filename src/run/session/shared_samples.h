#pragma once
// How the ranks of a run open their data together.

#include <functional>

#include "distributed/agreement.h"
#include "run/session/build.h"
#include "run/session/rank_context.h"
#include "train/engine/parts.h"

namespace trainer::session {

// Collective: calls `open`, which opens samples, on each rank that reads them, first on one rank of each host, which downloads and copies
// what is missing. Tells the other ranks the number and the shape of the samples, without the names of the classes, which only rank 0
// needs. Throws the errors of `open`, and those of require_same_data().
engine::TrainingSamples open_together(RankContext& context, const std::function<engine::TrainingSamples()>& open);
// The same of an evaluation, which opens one set alone.
engine::Samples open_together(RankContext& context, const std::function<engine::Samples()>& open);

// Whether all ranks see the same data: a host can have an incomplete or an older copy at the same path.

// Collective, when the ranks that read the data have opened them: compares the shape and the classes, the number of samples, what is listed
// of each of them (Dataset::list), and the order of the first epoch, in which a sampler may use a file of the host. Throws DataError that
// names the first rank that differs from rank 0, its host and an example of the difference.
// `samples`: null on a rank that does not read them.
void require_same_data(distributed::StartupBarrier& barrier, const engine::Ranks& ranks, const engine::TrainingSamples* samples);
void require_same_data(distributed::StartupBarrier& barrier, const engine::Ranks& ranks, const engine::Samples* samples);

}  // namespace trainer::session
