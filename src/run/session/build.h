#pragma once
// Builds what a run trains with from its configuration. Only this file and registries.h know every kind of component.

#include "base/log.h"
#include "config/experiment.h"
#include "datasets/registry.h"
#include "device/placement.h"
#include "train/engine/parts.h"
#include "trainer/options.h"

namespace trainer::session {

// Throws UsageError that names the key if the warm-up is not shorter than the training.
optim::LrSchedule make_lr_schedule(const config::Experiment& experiment, int64_t total_steps, int64_t steps_per_epoch);

// The functions of train/engine/plan.h. Throw UsageError that names the key and its place.
int64_t global_batch_size(const config::Experiment& experiment, int world_size);
engine::Plan make_plan(const config::Experiment& experiment, int64_t samples_per_epoch, int world_size);

// Those of train/engine/parts.h. Collective. Throws UsageError that names the key and its place.
engine::Ranks make_ranks(const config::Experiment& experiment, distributed::ProcessGroups& groups);

engine::LoopOptions loop_options(const config::Experiment& experiment);

// The threads of a loader under dataloader.num_workers: auto.
int64_t default_num_workers(const device::Placement& placement);

// What the sections runtime, amp and dataloader ask for.
device::PlacementOptions placement_options(const config::Experiment& experiment);

// Builds model, task and optimizer, without opening the data. Not collective. `experiment` is one that config::load() has checked. Throws
// UsageError for layers and parameters that the network does not have (parameter_names.h), and when memory does not suffice.
engine::Network build_network(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks = {});

// The group and the part of each training file by dataset.split, which the experiment has. Throws UsageError.
struct Division {
  std::vector<std::string> groups;
  std::vector<data::Split> parts;
};
Division divide_files(const config::Experiment& experiment, const data::Dataset& files);

// The seed of the random transforms of all samples.
uint64_t augmentation_seed(const config::Experiment& experiment);

// How many images training.overfit_batches leaves for training and for validation, on so many ranks; empty: all. Throws UsageError.
std::optional<int64_t> num_overfit_samples(const config::Experiment& experiment, int world_size);

// Not collective. Throws UsageError, and DataError naming the file and what to do. `logger` must outlive the samples.
engine::OpenedSamples open_samples(const config::Experiment& experiment, Logger& logger);
// With the data set of the experiment, whose files may lie in another folder. `num_overfit`: as num_overfit_samples() tells.
engine::OpenedSamples open_samples(const config::Experiment& experiment, const data::DatasetFactory& dataset, Logger& logger,
                                   const std::optional<int64_t>& num_overfit = {});

// Opens one of the two alone, without the files that it does not need. Not collective. Throws as open_samples().
engine::Samples open_split(const config::Experiment& experiment, const data::DatasetFactory& dataset, data::Split split, Logger& logger);

// Makes the sampler of these training samples, which need not outlive it. Not collective. Throws UsageError and DataError.
std::unique_ptr<data::Sampler> make_sampler(const config::Experiment& experiment, const engine::Samples& train);

// Makes the plan, the loaders and the batches that they give. Not collective. Throws UsageError. `logger` must outlive the data.
engine::Data make_data(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks, Logger& logger,
                       engine::TrainingSamples samples);
// The loader and the batches, of validation.batch_size, of samples that are evaluated once. Not collective. Throws UsageError. `logger`
// must outlive the source.
engine::DataSource make_source(const config::Experiment& experiment, const std::vector<ComponentConfig>& transforms,
                               const device::Placement& placement, const engine::Ranks& ranks, Logger& logger, engine::Samples samples);

}  // namespace trainer::session
