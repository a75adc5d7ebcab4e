#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/log.h"
#include "base/program.h"
#include "base/random.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/light_commands.h"
#include "launch/launcher.h"
#include "launch/plan.h"
#include "launch/world/host_resources.h"

namespace trainer::cli {
namespace {

struct LaunchArguments {
  launch::Choice choice;
  int num_nodes = 1;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  int max_restarts = 0;
  std::string program;  // of --no-python; empty: this program
  std::vector<std::string> trainer;
};

int parse_num_nodes(const std::string& text) {
  if (const auto number = parse_number<int>(text); number && *number >= 1) return *number;
  if (text.find(':') != text.npos) {
    throw UsageError(fmt::format(
        "--nnodes {}: this launcher needs a fixed number of hosts; if the number varies, start the program with torchrun --nnodes {}", text,
        text));
  }
  throw UsageError(fmt::format("--nnodes {}: expected the number of hosts, 1 or more", text));
}

std::string find_other_program(const std::string& name) {
  try {
    return find_program(name);
  } catch (const Error& reason) {
    throw UsageError(
        fmt::format("{} {}: this program cannot be started: {}; give the path of a program", launch::kNoPython, name, reason.what()));
  }
}

LaunchArguments parse_launch_arguments(const std::vector<std::string>& args) {
  LaunchArguments arguments;
  CLI::App app(
      "Starts the ranks of a run, one process per GPU. Each rank gets the arguments after --, or all arguments from the first one that "
      "is not an option of the launcher:\n  trainer launch --nproc-per-node 4 --config FILE [key=value ...]\n"
      "  trainer launch --no-python PROGRAM [ARGUMENT ...]",
      "trainer launch");
  app.add_option("--nproc-per-node,--nproc_per_node", arguments.choice.num_processes,
                 "number of processes on this host; auto: one per GPU, 2 without a GPU")
      ->type_name("N|auto");
  app.add_option("--gpus", arguments.choice.gpus, "GPUs to use, as in CUDA_VISIBLE_DEVICES; default: all visible ones")
      ->type_name("0,2,...");
  std::string num_nodes = "1";
  app.add_option("--nnodes", num_nodes, "number of hosts; start a launcher on each of them")->type_name("N");
  app.add_option("--node-rank,--node_rank", arguments.node_rank, "number of this host, from 0")->check(CLI::NonNegativeNumber);
  app.add_option("--master-addr,--master_addr", arguments.master_addr, "name or address of host 0; needed with more than one host");
  app.add_option("--master-port,--master_port", arguments.master_port,
                 "port of host 0; needed with more than one host; default on one host: a free port")
      ->check(CLI::Range(1, 65535));
  app.add_option(
         "--max-restarts,--max_restarts", arguments.max_restarts,
         "how many times to restart all processes after a failure, except after errors in the configuration, the data or a checkpoint")
      ->check(CLI::NonNegativeNumber);
  std::vector<std::string> flags;
  for (const auto* option : app.get_options([&](const CLI::Option* option) { return option != app.get_help_ptr(); })) {
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
  }
  bool is_other_program = false;
  app.add_flag(std::string(launch::kNoPython), is_other_program,
               "start the program that follows instead of trainer, such as an own training loop (docs/library.md)");
  auto split = launch::split_arguments(args, flags);
  parse(app, split.own);
  if (split.trainer.empty()) throw UsageError("trainer launch: nothing to start; add --config FILE, or a command with its arguments");
  if (is_other_program) {
    arguments.program = find_other_program(split.trainer.front());
    split.trainer.erase(split.trainer.begin());
  }
  const auto& rest = split.trainer;
  const bool reads_input =
      !is_other_program && (std::ranges::find(rest, "--config=-") != rest.end() ||
                            std::ranges::search(rest, std::array<std::string, 2>{"--config", "-"}).begin() != rest.end());
  if (reads_input)
    throw UsageError("--config -: the processes of a launcher cannot share the standard input; write the experiment to a file");
  arguments.master_addr = world::without_brackets(std::move(arguments.master_addr));
  arguments.num_nodes = parse_num_nodes(num_nodes);
  if (arguments.node_rank >= arguments.num_nodes) {
    throw UsageError(
        fmt::format("--node-rank {} with --nnodes {}: hosts are numbered from 0, so the last one is {}; correct one of the two options",
                    arguments.node_rank, arguments.num_nodes, arguments.num_nodes - 1));
  }
  if (arguments.num_nodes > 1 && (arguments.master_addr.empty() || arguments.master_port == 0)) {
    throw UsageError(fmt::format(
        "--nnodes {} needs --master-addr and --master-port: the address and port of host 0, the same on every host", arguments.num_nodes));
  }
  arguments.trainer = std::move(split.trainer);
  return arguments;
}

// `port`: a free port of this host, if the arguments do not name one.
launch::Processes make_processes(const LaunchArguments& arguments, int attempt, const std::optional<launch::FreePort>& port) {
  launch::Processes processes;
  processes.program = arguments.program.empty() ? own_program() : arguments.program;
  processes.arguments = arguments.trainer;
  world::RankEnv rank_env;
  rank_env.local_world_size = launch::num_processes(arguments.choice, world::process_environment());
  rank_env.num_nodes = arguments.num_nodes;
  if (rank_env.num_nodes > world::kMostRanks / rank_env.local_world_size) {
    throw UsageError(fmt::format("--nnodes {} with {} processes each: at most {} ranks are possible; use fewer hosts or processes",
                                 rank_env.num_nodes, rank_env.local_world_size, world::kMostRanks));
  }
  rank_env.world_size = rank_env.local_world_size * rank_env.num_nodes;
  rank_env.rank = processes.first_rank = rank_env.local_world_size * arguments.node_rank;
  rank_env.master_addr = arguments.master_addr.empty() ? "127.0.0.1" : arguments.master_addr;
  rank_env.master_port = port ? port->number() : arguments.master_port;
  rank_env.restart_attempt = attempt;
  if (port) {
    rank_env.listen_descriptor = port->descriptor();
    processes.first_keeps = {port->descriptor()};
  }
  // Launchers on several hosts cannot agree on a secret.
  if (rank_env.num_nodes == 1) rank_env.secret = {world::RunSecret::Source::kLauncher, random_token()};
  const auto inherited = inherited_environment();
  for (; rank_env.local_rank < rank_env.local_world_size; ++rank_env.rank, ++rank_env.local_rank) {
    processes.environments.push_back(launch::child_environment(inherited, rank_env, arguments.choice.gpus));
    rank_env.listen_descriptor = -1;
  }
  return processes;
}

// Whether a restart may help: not after errors in the input, which would occur again, nor after a stop request.
bool may_restart(const launch::Outcome& outcome) {
  constexpr std::array kFinal = {ExitCode::kDone, ExitCode::kUsage, ExitCode::kData, ExitCode::kCheckpoint, ExitCode::kStopped};
  return !outcome.was_asked_to_stop && std::ranges::find(kFinal, static_cast<ExitCode>(outcome.exit_code)) == kFinal.end();
}

}  // namespace

ExitCode launch(const std::vector<std::string>& args) {
  const auto arguments = parse_launch_arguments(args);
  const auto logger = make_console_logger(/*rank=*/0, world::can_redraw_lines());
  for (int attempt = 0;; ++attempt) {
    std::optional<launch::FreePort> port;
    if (arguments.master_port == 0) port.emplace();
    const auto outcome = launch::run(make_processes(arguments, attempt, port), {}, *logger);
    if (attempt == arguments.max_restarts || !may_restart(outcome)) return static_cast<ExitCode>(outcome.exit_code);
    logger->warn("restarting all processes: restart {} of {}", attempt + 1, arguments.max_restarts);
  }
}

}  // namespace trainer::cli
