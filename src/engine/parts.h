#pragma once
// Everything that a run is made of, built from a configuration.

#include <memory>

#include "amp/grad_scaler.h"
#include "base/log.h"
#include "config/experiment.h"
#include "device/placement.h"
#include "distributed/data_parallel.h"
#include "distributed/process_groups.h"
#include "engine/plan.h"
#include "input/data_loader.h"
#include "input/distributed_sampler.h"
#include "models/model.h"
#include "optim/ema.h"
#include "optim/lr_scheduler.h"
#include "optim/optimizer.h"
#include "task/task.h"

namespace trainer::engine {

// One side of the data: the samples and what is done to them.
struct DataSource {
  std::unique_ptr<input::Dataset> files;  // as opened
  std::unique_ptr<input::Dataset> part;   // what is used of them, where it is not all
  std::unique_ptr<input::Pipeline> pipeline;
  std::unique_ptr<input::DataLoader> loader;

  const input::Dataset& dataset() const { return part ? *part : *files; }
};

// The process groups of a run, one for each purpose that must not wait for the others. As it is: of one process.
struct Ranks {
  std::shared_ptr<distributed::ProcessGroup> world = std::make_shared<distributed::ProcessGroup>();
  // Statistics are gathered while buckets of gradients are under way in `world`.
  std::shared_ptr<distributed::ProcessGroup> batch_norm = world;
  std::shared_ptr<distributed::ProcessGroup> control = world;
  // Of this rank, for those who watch over it.
  std::shared_ptr<distributed::Activity> activity = std::make_shared<distributed::Activity>();
};
// Collective.
Ranks make_ranks(distributed::ProcessGroups& groups);

struct Parts {
  Ranks ranks;
  device::Placement placement;  // as given, but in the memory format that the network prefers where that is `auto`
  at::Generator dropout_generator;
  std::shared_ptr<models::Model> model;  // on the placement's device
  std::unique_ptr<task::Task> task;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<amp::GradScaler> grad_scaler;  // under float16 autocast
  // By join_ranks.
  std::unique_ptr<distributed::DataParallel> data_parallel;
  std::unique_ptr<optim::Ema> ema;  // where training.ema asks for it

  // From here on: by open_data.
  DataSource train;
  DataSource validation;
  Plan plan;
  std::unique_ptr<input::DistributedSampler> sampler;
  optim::LrSchedule lr_factor;
};

// Model, task, optimizer: all that needs no data. Checks that model, data set, transforms and loss fit together before anything is
// opened; throws one UsageError that lists all that does not. Not collective: the ranks are joined by join_ranks.
Parts build_parts(const config::Experiment& experiment, const device::Placement& placement, const Ranks& ranks = {});

// Collective: gives all ranks the model of rank 0 and prepares the exchange of gradients.
void join_ranks(const config::Experiment& experiment, Parts& parts);

// Opens the data and completes `parts` with what depends on its size. Throws UsageError and DataError.
void open_data(const config::Experiment& experiment, Parts& parts, Logger& logger);

}  // namespace trainer::engine
