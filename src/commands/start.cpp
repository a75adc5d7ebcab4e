#include "commands/start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"
#include "commands/version.h"
#include "config/load.h"
#include "distributed/rendezvous.h"
#include "world/host_resources.h"
#include "world/slurm.h"

namespace trainer::commands {
namespace {

// Whether it matters how many GPUs Slurm has given the tasks of this host, and it is this one of them that says so.
bool minds_slurm_gpus(const Start& start) {
  const bool has_step = start.place.slurm_gpus && start.place.local_rank == 0;
  return has_step && start.experiment.runtime.device != config::DeviceChoice::kCpu;
}

void check_slurm_gpus(const Start& start, Logger& logger) {
  if (!minds_slurm_gpus(start)) return;
  const int num_tasks = start.place.local_world_size;
  const int num_gpus = *start.place.slurm_gpus;
  // gloo can serve several ranks on the one GPU that all of them see.
  const bool may_share = num_gpus == 1 && start.experiment.distributed.backend == config::BackendChoice::kGloo;
  if (const auto refusal = world::too_few_gpus(num_tasks, num_gpus); !refusal.empty() && !may_share) throw UsageError(refusal);
  if (const auto warning = world::idle_gpus(num_tasks, num_gpus); !warning.empty()) logger.warn("{}", warning);
}

}  // namespace

Start meet_others(const ExperimentArguments& arguments, const config::Registries& registries, Logger& logger, world::Place place,
                  Watch& watch) {
  Start start{.place = std::move(place), .experiment = {}, .config_text = {}, .assembly = {}, .store = {}, .activity = watch.activity()};
  distributed::Problem problem;
  try {
    start.experiment = config::load(arguments.file, arguments.overrides, registries);
    start.config_text = config::to_yaml(start.experiment, registries);
  } catch (const Error& error) {
    if (start.place.world_size == 1) throw;
    problem = {error.what(), static_cast<int>(error.exit_code())};
  }
  const auto& section = start.experiment.distributed;
  watch.set_hang_limit(std::chrono::seconds(section.hang_seconds));
  const auto point = world::meeting_point(start.place, section.init_method);
  if (point.kind == world::MeetingPoint::Kind::kAlone) return start;

  logger.info("{}", start.place.decision);
  distributed::Introduction mine;
  mine.host = world::host_name();
  mine.process_id = getpid();
  mine.cpu_mask = world::cpu_mask();
  mine.version = fmt::format("trainer {} ({}) with LibTorch {}", trainer_version(), git_revision(), libtorch_version());
  mine.config = start.config_text;
  mine.problem = problem;
  const std::chrono::seconds timeout(section.timeout_seconds);
  const auto meeting = distributed::meet(start.place, point, mine, timeout, logger);
  start.local_rank = meeting.local_rank;
  start.num_sharing_cpus = meeting.num_sharing_cpus;
  start.assembly = {meeting.store, start.place.rank, start.place.world_size, timeout};
  start.store = meeting.store;
  start.address = meeting.address;
  watch.begin(meeting);
  return start;
}

device::Placement set_up_placement(const Start& start, Logger& logger) {
  device::configure_cpu_allocator();
  check_slurm_gpus(start, logger);
  const device::HostShare share{.num_cpus = world::available_cpus(start.num_sharing_cpus), .local_rank = start.local_rank};
  auto placement = set_up_placement(start.experiment, share, logger);
  if (minds_slurm_gpus(start) && *start.place.slurm_gpus > 0 && placement.cuda == nullptr) {
    logger.warn(
        "Slurm has given this node {} GPUs (SLURM_GPUS_ON_NODE), but {} shows none to this program, which trains on the CPU; a container "
        "needs its option for GPUs, such as apptainer's --nv",
        *start.place.slurm_gpus, world::host_name());
  }
  return placement;
}

device::Placement set_up_placement(const config::Experiment& experiment, const device::HostShare& share, Logger& logger) {
  const auto* cuda = device::open_cuda_module(experiment.runtime.cuda_allocator, logger);
  auto placement = device::choose_placement(experiment.runtime, experiment.amp, experiment.dataloader.pin_memory, share, cuda);
  device::apply_placement(placement, experiment.runtime);
  return placement;
}

std::unique_ptr<distributed::ProcessGroups> make_groups(const Start& start, const device::Placement& placement) {
  const auto& section = start.experiment.distributed;
  const distributed::GroupOptions options{.backend = section.backend,
                                          .device = placement.device,
                                          .cuda = placement.cuda,
                                          .gloo_interface = start.place.gloo_interface,
                                          .gloo_address = start.address,
                                          .timeout = std::chrono::seconds(section.timeout_seconds),
                                          .activity = start.activity};
  const bool alone = start.store == nullptr && section.backend == config::BackendChoice::kAuto;
  if (alone) return std::make_unique<distributed::ProcessGroups>();
  auto store = start.store;
  if (!store) store = c10::make_intrusive<c10d::HashStore>();
  return std::make_unique<distributed::ProcessGroups>(store, start.place.rank, start.place.world_size, options);
}

}  // namespace trainer::commands
