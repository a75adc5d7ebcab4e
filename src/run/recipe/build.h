#pragma once
// From an experiment to the recipe of a run, and to single parts of it.

#include <functional>

#include "base/log.h"
#include "config/experiment.h"
#include "device/placement.h"
#include "run/recipe/recipe.h"
#include "train/engine/parts.h"
#include "trainer/options.h"

namespace trainer::recipe {

// Like the functions of train/engine/plan.h, with the options of the experiment. Throw UsageError with the key and its place.
int64_t global_batch_size(const config::Experiment& experiment, int world_size);
engine::Plan make_plan(const config::Experiment& experiment, int64_t samples_per_epoch, int world_size);

// Like engine::make_ranks(), with the options of the experiment. Collective. Throws UsageError with the key and its place.
engine::Ranks make_ranks(const config::Experiment& experiment, distributed::ProcessGroups& groups);

// The number of threads of a data loader with dataloader.num_workers: auto.
int64_t default_num_workers(const device::Placement& placement);

// The options from the sections runtime, amp and dataloader.
device::PlacementOptions placement_options(const config::Experiment& experiment);

// The recipe of a run of this experiment, without what needs its data and its other ranks. Both arguments must outlive the result. Throws
// UsageError.
Recipe recipe_of(const config::Experiment& experiment, Logger& logger);

// Builds model, task and optimizer without opening the data. Not collective. `experiment` must have been checked by config::load(). Throws
// UsageError for names of layers and parameters that the network does not have (train/engine/freezing.h), and when memory runs out.
// `load_weights`: sets all values of the new network, which then gets no initial values; may be empty.
engine::Network build_network(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks = {},
                              const std::function<void(models::Model&)>& load_weights = {});

// The number of images that training.overfit_batches uses for training and for validation on `world_size` ranks; empty: all. Throws
// UsageError.
std::optional<int64_t> num_overfit_samples(const config::Experiment& experiment, int world_size);

}  // namespace trainer::recipe
