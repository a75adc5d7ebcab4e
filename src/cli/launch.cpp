#include "cli/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "base/log.h"
#include "cli/arguments.h"
#include "launch/elastic.h"
#include "launch/elastic_options.h"
#include "launch/launcher.h"
#include "launch/plan.h"
#include "world/host_resources.h"

namespace trainer::cli {
namespace {

struct LaunchArguments {
  launch::Choice choice;
  launch::NumNodes num_nodes;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  int max_restarts = 0;
  launch::RendezvousTimes times;
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
  std::string num_nodes = "1";
  app.add_option(
         "--nnodes", num_nodes,
         "number of hosts; start a launcher on each of them. MIN:MAX: the run continues with the hosts that are left, if they are at "
         "least MIN, and with those that join, up to MAX")
      ->type_name("N|MIN:MAX");
  app.add_option("--node-rank,--node_rank", arguments.node_rank, "number of this host, from 0")->check(CLI::NonNegativeNumber);
  app.add_option("--master-addr,--master_addr", arguments.master_addr, "name or address of host 0; needed with more than one host");
  app.add_option("--master-port,--master_port", arguments.master_port,
                 "port of host 0; needed with more than one host; default: a free port")
      ->check(CLI::Range(1, 65535));
  app.add_option("--max-restarts,--max_restarts", arguments.max_restarts,
                 "how often to restart all processes after a failure or the loss of a host; not after errors in configuration or data")
      ->check(CLI::NonNegativeNumber);
  std::string times;
  app.add_option(
         "--rdzv-conf,--rdzv_conf", times,
         "with --nnodes MIN:MAX, in seconds: last_call_timeout=30 (how long MIN hosts wait for more), join_timeout=600 (how long fewer "
         "wait), keep_alive_interval=5, keep_alive_max_attempt=3 (after how many intervals without an answer a host is lost)")
      ->type_name("KEY=VALUE,...");
  std::vector<std::string> flags;
  for (const auto* option : app.get_options([&](const CLI::Option* option) { return option != app.get_help_ptr(); })) {
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
  }
  auto split = launch::split_arguments(args, flags);
  parse(app, split.own);
  if (split.trainer.empty()) throw UsageError("trainer launch: nothing to start; add --config FILE, or a command with its arguments");
  const auto& rest = split.trainer;
  const bool reads_input = std::ranges::find(rest, "--config=-") != rest.end() ||
                           std::ranges::search(rest, std::array<std::string, 2>{"--config", "-"}).begin() != rest.end();
  if (reads_input)
    throw UsageError("--config -: the processes of a launcher cannot share the standard input; write the experiment to a file");
  arguments.master_addr = world::without_brackets(std::move(arguments.master_addr));
  arguments.num_nodes = launch::parse_num_nodes(num_nodes);
  const int most_nodes = arguments.num_nodes.max;
  if (arguments.node_rank >= most_nodes) {
    throw UsageError(fmt::format("--node-rank {} of --nnodes {}: hosts count from 0, so the last one is {}; correct one of them",
                                 arguments.node_rank, num_nodes, most_nodes - 1));
  }
  const bool needs_address = most_nodes > 1 || arguments.num_nodes.is_elastic;
  if (needs_address && (arguments.master_addr.empty() || arguments.master_port == 0)) {
    throw UsageError(fmt::format(
        "--nnodes {} needs --master-addr and --master-port: the address and port of host 0, the same on every host", num_nodes));
  }
  if (!times.empty() && !arguments.num_nodes.is_elastic) {
    throw UsageError(fmt::format("--rdzv-conf has no effect with --nnodes {}; set --nnodes MIN:MAX, or omit it", num_nodes));
  }
  arguments.times = launch::parse_rendezvous_times(times);
  arguments.trainer = std::move(split.trainer);
  return arguments;
}

// An attempt of the processes of this host.
struct Attempt {
  int number = 0;
  int group_rank = 0;
  int num_nodes = 1;
  int master_port = 0;
  int listen_descriptor = -1;  // a socket that is bound to master_port, for the first process; -1: none
};

launch::Processes make_processes(const LaunchArguments& arguments, int num_processes, const Attempt& attempt) {
  launch::Processes processes;
  processes.program = std::filesystem::read_symlink("/proc/self/exe").string();
  processes.arguments = arguments.trainer;
  world::RankEnv rank_env;
  rank_env.local_world_size = num_processes;
  rank_env.num_nodes = attempt.num_nodes;
  rank_env.world_size = rank_env.local_world_size * rank_env.num_nodes;
  if (rank_env.world_size > world::kMostRanks) {
    throw UsageError(fmt::format("--nnodes {} with {} processes each: at most {} ranks are possible; give fewer", rank_env.num_nodes,
                                 rank_env.local_world_size, world::kMostRanks));
  }
  rank_env.rank = processes.first_rank = rank_env.local_world_size * attempt.group_rank;
  rank_env.master_addr = arguments.master_addr.empty() ? "127.0.0.1" : arguments.master_addr;
  rank_env.master_port = attempt.master_port;
  rank_env.restart_attempt = attempt.number;
  rank_env.listen_descriptor = attempt.listen_descriptor;
  if (attempt.listen_descriptor >= 0) processes.first_keeps = {attempt.listen_descriptor};
  // Launchers on several hosts have no way to agree on one.
  if (rank_env.num_nodes == 1) rank_env.secret = launch::random_secret();
  const auto inherited = launch::inherited_environment();
  for (; rank_env.local_rank < rank_env.local_world_size; ++rank_env.rank, ++rank_env.local_rank) {
    processes.environments.push_back(launch::child_environment(inherited, rank_env, arguments.choice.gpus));
    rank_env.listen_descriptor = -1;
  }
  return processes;
}

launch::Outcome run_once(const LaunchArguments& arguments, int number, Logger& logger) {
  Attempt attempt{
      .number = number, .group_rank = arguments.node_rank, .num_nodes = arguments.num_nodes.max, .master_port = arguments.master_port};
  std::optional<launch::FreePort> port;
  if (attempt.master_port == 0) {
    port.emplace();
    attempt.master_port = port->number();
    attempt.listen_descriptor = port->descriptor();
  }
  const int num_processes = launch::num_processes(arguments.choice, world::process_environment());
  return launch::run(make_processes(arguments, num_processes, attempt), {}, logger);
}

launch::Outcome run_elastic(const LaunchArguments& arguments, Logger& logger) {
  const launch::ElasticOptions options{.limits = {.min_nodes = arguments.num_nodes.min,
                                                  .max_nodes = arguments.num_nodes.max,
                                                  .max_restarts = arguments.max_restarts,
                                                  .last_call_timeout = arguments.times.last_call_timeout,
                                                  .join_timeout = arguments.times.join_timeout},
                                       .keep_alive = arguments.times.keep_alive,
                                       .node = arguments.node_rank,
                                       .master_addr = arguments.master_addr,
                                       .master_port = arguments.master_port,
                                       .num_processes = launch::num_processes(arguments.choice, world::process_environment())};
  const auto make = [&](const launch::Order& start, int listen_descriptor) {
    return make_processes(arguments, options.num_processes,
                          {.number = start.attempt,
                           .group_rank = start.group_rank,
                           .num_nodes = start.num_nodes,
                           .master_port = start.port,
                           .listen_descriptor = listen_descriptor});
  };
  return launch::run_elastic(options, make, logger);
}

// Not after errors in the input, which would repeat, and not after a stop request.
bool may_restart(const launch::Outcome& outcome) { return !outcome.was_asked_to_stop && !launch::is_final(outcome.exit_code); }

}  // namespace

ExitCode launch(const std::vector<std::string>& args) {
  const auto arguments = parse_launch_arguments(args);
  const auto logger = make_console_logger(/*rank=*/0, world::can_redraw_lines());
  if (arguments.num_nodes.is_elastic) return static_cast<ExitCode>(run_elastic(arguments, *logger).exit_code);
  for (int attempt = 0;; ++attempt) {
    const auto outcome = run_once(arguments, attempt, *logger);
    if (attempt == arguments.max_restarts || !may_restart(outcome)) return static_cast<ExitCode>(outcome.exit_code);
    logger->warn("restarting all processes: restart {} of {}", attempt + 1, arguments.max_restarts);
  }
}

}  // namespace trainer::cli
