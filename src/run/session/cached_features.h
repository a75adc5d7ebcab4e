#pragma once
// The features that frozen layers compute of the samples, kept in a file for the epochs of this and later runs (training.cache_features).

#include <filesystem>

#include "run/session/rank_context.h"
#include "train/engine/parts.h"

namespace trainer::session {

// ${TRAINER_HOME}/features, or ~/.cache/trainer/features.
std::filesystem::path features_folder();

// Collective: data with the features of all samples in place of the samples, which the network takes from now on. They are computed by the
// ranks of each host together, or found in the file of an earlier run with the same weights, samples and transforms. `images`: the data of
// the experiment, which each rank reads. The network has equal weights on all ranks. Throws UsageError for a network that is no
// models::BackboneModel or trains parameters before its features, DataError, and Error with ExitCode::kStopped after a stop request.
engine::Data cache_features(RankContext& context, engine::Network& network, engine::Data images);

}  // namespace trainer::session
