#pragma once
// How the ranks of a run open their data together.

#include <functional>

#include "engine/parts.h"
#include "session/rank_context.h"

namespace trainer::session {

// Collective: calls `open`, which opens the samples of `data`, on each rank that reads them, first on one rank of each host, which
// downloads and copies what is missing. Tells the other ranks the number and the shape of the samples, without the names of the classes,
// which only rank 0 needs. Throws the errors of `open`, and those of require_same_data().
void open_together(RankContext& context, engine::Data& data, const std::function<void()>& open);

}  // namespace trainer::session
