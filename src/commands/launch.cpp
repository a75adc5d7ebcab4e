#include <fmt/format.h>

#include "base/log.h"
#include "commands/arguments.h"
#include "commands/command.h"
#include "launch/free_port.h"
#include "launch/launcher.h"
#include "launch/plan.h"

namespace trainer::commands {
namespace {

launch::Processes make_processes(const launch::Choice& choice, std::vector<std::string> arguments) {
  launch::Processes processes;
  processes.program = std::filesystem::read_symlink("/proc/self/exe").string();
  processes.arguments = std::move(arguments);
  world::Place place;
  place.world_size = place.local_world_size = launch::num_processes(choice, world::process_environment());
  place.master_addr = "127.0.0.1";
  // Free again when the processes start: rank 0 binds it.
  const launch::FreePort port;
  place.master_port = port.number();
  const auto inherited = launch::inherited_environment();
  for (; place.rank < place.world_size; ++place.rank, ++place.local_rank) {
    processes.environments.push_back(launch::child_environment(inherited, place, choice.gpus));
  }
  return processes;
}

}  // namespace

ExitCode launch(const std::vector<std::string>& args) {
  auto split = launch::split_arguments(args);
  CLI::App app(
      "Starts one process per GPU, which train together. What follows -- or the first argument that is not the launcher's goes to "
      "each of them:\n  trainer launch --nproc-per-node 4 --config FILE [key=value ...]",
      "trainer launch");
  launch::Choice choice;
  app.add_option("--nproc-per-node,--nproc_per_node", choice.num_processes,
                 "processes on this host; auto: one per GPU, 2 where there is none")
      ->type_name("N|auto");
  app.add_option("--gpus", choice.gpus, "GPUs to use, as in CUDA_VISIBLE_DEVICES; default: all that are visible")->type_name("0,2,...");
  parse(app, split.own);
  if (split.trainer.empty()) throw UsageError("trainer launch: nothing to start; give --config FILE, or a command with its arguments");

  const auto processes = make_processes(choice, std::move(split.trainer));
  const auto logger = make_console_logger();
  return static_cast<ExitCode>(launch::run(processes, {}, *logger));
}

}  // namespace trainer::commands
