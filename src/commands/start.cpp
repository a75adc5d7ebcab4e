#include "commands/start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"
#include "commands/version.h"
#include "config/load.h"
#include "distributed/rendezvous.h"
#include "world/host_resources.h"

namespace trainer::commands {

Start meet_others(const ExperimentArguments& arguments, const config::Catalog& catalog, Logger& logger, world::Place place, Watch& watch) {
  Start start{.place = std::move(place), .experiment = {}, .config_text = {}, .assembly = {}, .store = {}, .activity = watch.activity()};
  distributed::Problem problem;
  try {
    start.experiment = config::load(arguments.file, arguments.overrides, catalog);
    start.config_text = config::to_yaml(start.experiment, catalog);
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
