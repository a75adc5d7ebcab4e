#pragma once
// Opens the data of a run on all of its ranks.

#include <functional>

#include "distributed/agreement.h"
#include "run/rank.h"
#include "train/engine/parts.h"

namespace trainer::samples {

// Collective: calls `open` on each rank that reads samples: first on local rank 0 of each host, so that it downloads and copies missing
// files, then on the others. Sends the description of the samples to the ranks that do not read, without the names of the classes, which
// only rank 0 needs. An evaluation opens one set, as `train` without a sampler. Throws the errors of `open`, and those of
// require_same_data().
engine::TrainingSamples open_together(run::Rank& rank, const std::function<engine::TrainingSamples()>& open);

// Checks that all ranks have the same data: a host can have an incomplete or an older copy at the same path.

// Collective, to be called after the data was opened: compares the shape and the classes, the number of samples, the origin, size and
// target of each, and the order of the first epoch, for which a sampler may use a file of the host. Throws DataError with the first rank
// that differs from rank 0, its host and an example of the difference.
// `samples`: null on a rank that does not read them.
void require_same_data(distributed::StartupBarrier& barrier, const engine::Ranks& ranks, const engine::TrainingSamples* samples);

}  // namespace trainer::samples
