#include <fmt/format.h>

#include <array>

#include "base/log.h"
#include "commands/arguments.h"
#include "commands/command.h"
#include "launch/launcher.h"
#include "launch/plan.h"
#include "world/host_resources.h"

namespace trainer::commands {
namespace {

struct LaunchArguments {
  launch::Choice choice;
  int num_nodes = 1;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  int max_restarts = 0;
  std::vector<std::string> trainer;
};

LaunchArguments parse_launch_arguments(const std::vector<std::string>& args) {
  LaunchArguments arguments;
  CLI::App app(
      "Starts one process per GPU, which train together. Each process gets the arguments after --, or from the first one that is "
      "not an option of the launcher:\n  trainer launch --nproc-per-node 4 --config FILE [key=value ...]",
      "trainer launch");
  app.add_option("--nproc-per-node,--nproc_per_node", arguments.choice.num_processes,
                 "processes on this host; auto: one per GPU, 2 without a GPU")
      ->type_name("N|auto");
  app.add_option("--gpus", arguments.choice.gpus, "GPUs to use, as in CUDA_VISIBLE_DEVICES; default: all that are visible")
      ->type_name("0,2,...");
  app.add_option("--nnodes", arguments.num_nodes, "number of hosts; start a launcher on each of them")->check(CLI::Range(1, 100'000));
  app.add_option("--node-rank,--node_rank", arguments.node_rank, "number of this host, from 0")->check(CLI::NonNegativeNumber);
  app.add_option("--master-addr,--master_addr", arguments.master_addr, "name or address of host 0; needed with more than one host");
  app.add_option("--master-port,--master_port", arguments.master_port,
                 "port of host 0; needed with more than one host; default: a free port")
      ->check(CLI::Range(1, 65535));
  app.add_option("--max-restarts,--max_restarts", arguments.max_restarts,
                 "how often to restart all processes after a failure; not after errors in configuration or data")
      ->check(CLI::NonNegativeNumber);
  std::vector<std::string> flags;
  for (const auto* option : app.get_options([&](const CLI::Option* option) { return option != app.get_help_ptr(); })) {
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
  }
  auto split = launch::split_arguments(args, flags);
  parse(app, split.own);
  if (split.trainer.empty()) throw UsageError("trainer launch: nothing to start; add --config FILE, or a command with its arguments");
  if (arguments.node_rank >= arguments.num_nodes) {
    throw UsageError(fmt::format("--node-rank {} of --nnodes {}: hosts count from 0, so the last one is {}; correct one of them",
                                 arguments.node_rank, arguments.num_nodes, arguments.num_nodes - 1));
  }
  if (arguments.num_nodes > 1 && (arguments.master_addr.empty() || arguments.master_port == 0)) {
    throw UsageError(fmt::format(
        "--nnodes {} needs --master-addr and --master-port: the address and port of host 0, the same on every host", arguments.num_nodes));
  }
  arguments.trainer = std::move(split.trainer);
  return arguments;
}

launch::Outcome run_once(const LaunchArguments& arguments, int attempt, Logger& logger) {
  launch::Processes processes;
  processes.program = std::filesystem::read_symlink("/proc/self/exe").string();
  processes.arguments = arguments.trainer;
  world::RankEnv rank_env;
  rank_env.local_world_size = launch::num_processes(arguments.choice, world::process_environment());
  rank_env.num_nodes = arguments.num_nodes;
  rank_env.world_size = rank_env.local_world_size * rank_env.num_nodes;
  rank_env.rank = processes.first_rank = rank_env.local_world_size * arguments.node_rank;
  rank_env.master_addr = arguments.master_addr.empty() ? "127.0.0.1" : arguments.master_addr;
  rank_env.master_port = arguments.master_port;
  rank_env.restart_attempt = attempt;
  std::optional<launch::FreePort> port;
  if (rank_env.master_port == 0) {
    port.emplace();
    rank_env.master_port = port->number();
    rank_env.listen_descriptor = port->descriptor();
    processes.first_keeps = {port->descriptor()};
  }
  const auto inherited = launch::inherited_environment();
  for (; rank_env.local_rank < rank_env.local_world_size; ++rank_env.rank, ++rank_env.local_rank) {
    processes.environments.push_back(launch::child_environment(inherited, rank_env, arguments.choice.gpus));
    rank_env.listen_descriptor = -1;
  }
  return launch::run(processes, {}, logger);
}

// Not after errors in the input, which would repeat, and not after a stop request.
bool may_restart(const launch::Outcome& outcome) {
  constexpr std::array kFinal = {ExitCode::kDone, ExitCode::kUsage, ExitCode::kData, ExitCode::kCheckpoint, ExitCode::kStopped};
  return !outcome.was_asked_to_stop && std::ranges::find(kFinal, static_cast<ExitCode>(outcome.exit_code)) == kFinal.end();
}

}  // namespace

ExitCode launch(const std::vector<std::string>& args) {
  const auto arguments = parse_launch_arguments(args);
  const auto logger = make_console_logger(/*rank=*/0, world::can_redraw_lines());
  for (int attempt = 0;; ++attempt) {
    const auto outcome = run_once(arguments, attempt, *logger);
    if (attempt == arguments.max_restarts || !may_restart(outcome)) return static_cast<ExitCode>(outcome.exit_code);
    logger->warn("restarting all processes: restart {} of {}", attempt + 1, arguments.max_restarts);
  }
}

}  // namespace trainer::commands
