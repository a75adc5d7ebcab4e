#pragma once
// The outputs of frozen layers for all samples, stored in a file of features/ in home_folder() for the epochs of this and later runs
// (training.cache_features).

#include <cstdint>
#include <vector>

#include "run/rank/rank_context.h"
#include "train/engine/parts.h"

namespace trainer::rank {

// The shape of the features of one sample. Throws UsageError for a network that is not a models::BackboneModel or whose backbone is not
// frozen. Leaves the network in eval mode.
std::vector<int64_t> shape_of_features(const engine::Network& network, const std::vector<int64_t>& sample_shape,
                                       const config::Experiment& experiment);

// Collective: replaces all samples by their features, which become the input of the network. The ranks of each host compute them together,
// or take them from the file of an earlier run with the same weights, samples and transforms. `images`: the data of the experiment; each
// rank must read its own samples. The network must have equal weights on all ranks. Throws like shape_of_features(),
// DataError, and Error with ExitCode::kStopped after a stop request.
engine::Data cache_features(RankContext& context, engine::Network& network, engine::Data images, const recipe::Recipe::MakeData& make_data);

}  // namespace trainer::rank
