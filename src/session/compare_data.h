#pragma once
// Whether all ranks see the same data: a host can have an incomplete or an older copy at the same path.

#include "distributed/startup_barrier.h"
#include "engine/parts.h"

namespace trainer::session {

// Collective, when the ranks that read the data have opened them: compares the shape and the classes, the number of samples, what is listed
// of each of them (Dataset::list), and the order of the first epoch, in which a sampler may use a file of the host. Throws DataError that
// names the first rank that differs from rank 0, its host and an example of the difference.
void require_same_data(distributed::StartupBarrier& barrier, const engine::Ranks& ranks, const engine::Data& data);

}  // namespace trainer::session
