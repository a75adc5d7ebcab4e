#pragma once
// How a process of a run finds the others.

#include <memory>
#include <string>

#include "base/log.h"
#include "commands/arguments.h"
#include "commands/watch.h"
#include "config/experiment.h"
#include "config/registry.h"
#include "distributed/assembly.h"
#include "distributed/process_groups.h"
#include "world/place.h"

namespace trainer::commands {

// This process among those of the run, and what it shares with them.
struct Start {
  world::Place place;
  config::Experiment experiment;
  std::string config_text;
  int local_rank = 0;
  int num_sharing_cpus = 1;
  distributed::Assembly assembly;
  c10::intrusive_ptr<c10d::Store> store;  // null for a process alone
  std::string address = "127.0.0.1";
  std::shared_ptr<distributed::Activity> activity;
};

// Collective: loads the configuration and meets the other ranks. Every rank comes to the meeting, those whose configuration is wrong too,
// so that it is said once. From then on `watch` looks after this rank. Throws what config::load and distributed::meet do.
Start meet_others(const ExperimentArguments& arguments, const config::Registries& registries, Logger& logger, world::Place place,
                  Watch& watch);

// What a process that trains with others needs of it, and whether Slurm has given its step on this host GPUs that fit the tasks: throws
// UsageError when they are too few, and warns when some stay idle.
device::Placement set_up_placement(const Start& start, Logger& logger);

// Opens the CUDA module where there is a driver, chooses where tensors live on this host and sets LibTorch up for it. Throws what
// device::choose_placement does.
device::Placement set_up_placement(const config::Experiment& experiment, const device::HostShare& share, Logger& logger);

// Collective. One process needs no backend, unless it is asked for by name.
std::unique_ptr<distributed::ProcessGroups> make_groups(const Start& start, const device::Placement& placement);

}  // namespace trainer::commands
