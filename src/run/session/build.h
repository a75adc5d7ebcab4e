#pragma once
// Builds the parts of a run from its configuration.

#include <functional>

#include "base/log.h"
#include "config/experiment.h"
#include "datasets/registry.h"
#include "device/placement.h"
#include "train/engine/parts.h"
#include "trainer/options.h"

namespace trainer::session {

// Throws UsageError with the key if the warm-up is not shorter than the training run.
optim::LrSchedule make_lr_schedule(const config::Experiment& experiment, int64_t total_steps, int64_t steps_per_epoch);

// Like the functions of train/engine/plan.h, with the options of the experiment. Throw UsageError with the key and its place.
int64_t global_batch_size(const config::Experiment& experiment, int world_size);
engine::Plan make_plan(const config::Experiment& experiment, int64_t samples_per_epoch, int world_size);

// Like engine::make_ranks(), with the options of the experiment. Collective. Throws UsageError with the key and its place.
engine::Ranks make_ranks(const config::Experiment& experiment, distributed::ProcessGroups& groups);

engine::LoopOptions loop_options(const config::Experiment& experiment);

// The number of threads of a data loader with dataloader.num_workers: auto.
int64_t default_num_workers(const device::Placement& placement);

// The options from the sections runtime, amp and dataloader.
device::PlacementOptions placement_options(const config::Experiment& experiment);

// The options of optimizer.groups, model.freeze and the keys that belong to them.
optim::ParameterOptions parameter_options(const config::Experiment& experiment);

// Builds model, task and optimizer without opening the data. Not collective. `experiment` must have been checked by config::load(). Throws
// UsageError for names of layers and parameters that the network does not have (train/engine/freezing.h), and when memory runs out.
// `load_weights`: sets all values of the new network, which then gets no initial values; may be empty.
engine::Network build_network(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks = {},
                              const std::function<void(models::Model&)>& load_weights = {});

// The group and the part of each training file by dataset.split, which must be set. Throws UsageError.
struct Division {
  std::vector<std::string> groups;
  std::vector<data::Split> parts;
};
Division divide_files(const config::Experiment& experiment, const data::Dataset& files);

// The seed of the random transforms of all samples.
uint64_t augmentation_seed(const config::Experiment& experiment);

// The number of images that training.overfit_batches uses for training and for validation on `world_size` ranks; empty: all. Throws
// UsageError.
std::optional<int64_t> num_overfit_samples(const config::Experiment& experiment, int world_size);

// Opens the training and validation samples. Not collective. Throws UsageError, and DataError with the file and what to do. `logger` must
// outlive the samples.
engine::OpenedSamples open_samples(const config::Experiment& experiment, Logger& logger);
// The same with `dataset`, the experiment's data set, whose files may be in another folder. `num_overfit`: from num_overfit_samples().
engine::OpenedSamples open_samples(const config::Experiment& experiment, const data::DatasetFactory& dataset, Logger& logger,
                                   const std::optional<int64_t>& num_overfit = {});

// Opens only one split; if it is held out from the training files, opens these. Not collective. Throws like open_samples().
engine::Samples open_split(const config::Experiment& experiment, const data::DatasetFactory& dataset, data::Split split, Logger& logger);

// Makes the sampler of these training samples, which do not have to outlive it. Not collective. Throws UsageError and DataError.
std::unique_ptr<data::Sampler> make_sampler(const config::Experiment& experiment, const engine::Samples& train);

// Makes the plan, the loaders and the sources of batches. Not collective. Throws UsageError. `logger` must outlive the data.
engine::Data make_data(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks, Logger& logger,
                       engine::TrainingSamples samples);
// Makes the loader and the batches of samples that are evaluated once, with validation.batch_size. Not collective. Throws UsageError.
// `logger` must outlive the source.
engine::DataSource make_source(const config::Experiment& experiment, const std::vector<ComponentConfig>& transforms,
                               const device::Placement& placement, const engine::Ranks& ranks, Logger& logger, engine::Samples samples);

}  // namespace trainer::session
