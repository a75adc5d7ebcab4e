#include "launch/world/rank_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/text.h"
#include "launch/world/slurm.h"
#include "trainer/error.h"

namespace trainer::world {
namespace {

// A number, and the text that set it: "RANK=4", "--rank 4".
struct Setting {
  int value;
  std::string text;
};

constexpr int kNoLimit = std::numeric_limits<int>::max();

// Parses `value`. `text` is the whole setting, which the UsageError shows if `value` is not a whole number from `least` to `most`.
Setting to_number(std::string text, std::string_view value, int least, int most = kNoLimit) {
  const auto number = parse_number<int>(value);
  if (!number || *number < least || *number > most) {
    throw UsageError(text + (most == kNoLimit ? fmt::format(": expected a whole number of at least {}", least)
                                              : fmt::format(": expected a whole number from {} to {}", least, most)));
  }
  return {*number, std::move(text)};
}

class VariableReader {
 public:
  explicit VariableReader(const Environment& environment) : environment_(environment) {}

  // A variable with an empty value counts as not set.
  std::optional<std::string> text(std::string_view name) const {
    auto value = environment_(std::string(name));
    return value && !value->empty() ? value : std::nullopt;
  }
  // Throws like to_number().
  std::optional<Setting> number(std::string_view name, int least, int most = kNoLimit) const {
    const auto value = text(name);
    return value ? std::optional(to_number(show(name), *value, least, most)) : std::nullopt;
  }
  // Also empty if the variable is not a number.
  std::optional<uint64_t> unsigned_number(std::string_view name) const { return parse_number<uint64_t>(text(name).value_or("")); }
  // "RANK=4"
  std::string show(std::string_view name) const { return fmt::format("{}={}", name, text(name).value_or("")); }

 private:
  const Environment& environment_;
};

// The names of the flags or variables that set a process's ranks and sizes.
struct Names {
  std::string_view rank, world_size, local_rank, local_world_size;
};

constexpr Names kFlags = {"--rank", "--world-size", "--local-rank", "LOCAL_WORLD_SIZE"};
constexpr Names kRank = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Names kSlurmStep = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"};
// The variables of the job, used if those of the step are not set.
constexpr Names kSlurmJob = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"};

// The ranks and sizes that the flags or one launcher set for this process; the names are empty if none are set.
struct Claim {
  Names names;
  std::optional<Setting> rank, world_size, local_rank, local_world_size;
};

Names slurm_names(const VariableReader& variables) {
  Names names = variables.text(kSlurmStep.world_size) ? kSlurmStep : kSlurmJob;
  names.local_world_size = variables.text(kSlurmStep.local_world_size) ? kSlurmStep.local_world_size : kSlurmJob.local_world_size;
  return names;
}

// In shells of sbatch and salloc, SLURM_STEP_ID is not set or has a reserved value (0xfffffffb: batch, 0xfffffffa: interactive).
bool is_slurm_step(const VariableReader& variables) {
  const auto step = variables.unsigned_number("SLURM_STEP_ID");
  return step && *step < 0xfffffff0;
}

// `srun --mpi=pmi2` sets PMI_RANK and PMI_SIZE too, but not the variables for local ranks that MPICH's launcher sets.
bool is_pmi_of_slurm(const VariableReader& variables) {
  return is_slurm_step(variables) && !variables.text(kPmi.local_rank) && variables.text(kPmi.rank) == variables.text(kSlurmStep.rank) &&
         variables.text(kPmi.world_size) == variables.text(slurm_names(variables).world_size);
}

// The number of tasks on this host; empty if Slurm does not report it.
std::optional<Setting> read_tasks_on_node(const VariableReader& variables, std::string_view name) {
  const auto counts = variables.text(name);
  const auto node = variables.number("SLURM_NODEID", 0);
  if (!counts || !node) return std::nullopt;
  const auto tasks = tasks_on_node(*counts, node->value);
  if (tasks) return Setting{*tasks, variables.show(name)};
  throw UsageError(
      fmt::format("{} has no entry for {}: expected counts such as 2(x2),1, one for each node", variables.show(name), node->text));
}

Claim read(const VariableReader& variables, const Names& names) {
  return {
      names, variables.number(names.rank, 0), variables.number(names.world_size, 1), variables.number(names.local_rank, 0),
      names.rank == kSlurmStep.rank ? read_tasks_on_node(variables, names.local_world_size) : variables.number(names.local_world_size, 1)};
}

// Reads the variables of the first launcher that has set them. MPI precedes Slurm: inside an allocation mpirun starts its daemons with
// srun, and the ranks inherit the daemons' SLURM_PROCID.
Claim read_launcher(const VariableReader& variables) {
  for (const auto& names : {kRank, kOpenMpi, kPmi}) {
    const bool is_set = variables.text(names.rank) || variables.text(names.world_size);
    if (is_set && !(names.rank == kPmi.rank && is_pmi_of_slurm(variables))) return read(variables, names);
  }
  return is_slurm_step(variables) ? read(variables, slurm_names(variables)) : Claim{};
}

void check_agreement(const std::optional<Setting>& flag, const std::optional<Setting>& variable) {
  if (flag && variable && flag->value != variable->value) {
    throw UsageError(fmt::format("{} contradicts {} of the environment: omit the flag under a launcher, or unset the variable", flag->text,
                                 variable->text));
  }
}

Claim read_flags(const RankFlags& flags) {
  const auto number = [](std::string_view name, const std::optional<int64_t>& value, int least) {
    return value ? std::optional(to_number(fmt::format("{} {}", name, *value), std::to_string(*value), least)) : std::nullopt;
  };
  Claim claim = {{}, {}, {}, number(kFlags.local_rank, flags.local_rank, 0), {}};
  if (!flags.rank && !flags.world_size) return claim;
  claim.names = kFlags;
  claim.rank = number(kFlags.rank, flags.rank, 0);
  claim.world_size = number(kFlags.world_size, flags.world_size, 1);
  return claim;
}

bool has_names(const Claim& claim) { return !claim.names.rank.empty(); }

// Combines `flags` with the environment; `flags` take precedence but must not contradict it.
Claim join(const Claim& flags, const VariableReader& variables) {
  Claim claim = has_names(flags) ? read(variables, kRank) : read_launcher(variables);
  if (has_names(flags)) {
    check_agreement(flags.rank, claim.rank);
    check_agreement(flags.world_size, claim.world_size);
    claim.names = flags.names;
    claim.rank = flags.rank;
    claim.world_size = flags.world_size;
  }
  if (!flags.local_rank) return claim;
  if (!has_names(flags) && claim.names.rank != kRank.rank) {
    throw UsageError(
        fmt::format("{} is set without --rank and --world-size, or RANK and WORLD_SIZE; set both of one pair, or omit --local-rank",
                    flags.local_rank->text));
  }
  check_agreement(flags.local_rank, claim.local_rank);
  claim.local_rank = flags.local_rank;
  return claim;
}

void check_pair(const std::optional<Setting>& one, const std::optional<Setting>& other, std::string_view other_name) {
  if (one && !other) throw UsageError(fmt::format("{} is set, but {} is not; set both or neither", one->text, other_name));
}

void check_rank(const Setting& rank, const Setting& size) {
  if (rank.value >= size.value) {
    throw UsageError(fmt::format("{} with {}: ranks are numbered from 0, so the last one is {}; correct one of the two", rank.text,
                                 size.text, size.value - 1));
  }
}

// Checks that the claim is complete and consistent; sets the ranks, the sizes and the beginning of RankEnv::description.
RankEnv to_place(const Claim& claim) {
  const auto& [names, rank, world_size, local_rank, local_world_size] = claim;
  check_pair(rank, world_size, names.world_size);
  check_pair(world_size, rank, names.rank);
  if (!rank)
    throw UsageError(fmt::format("SLURM_STEP_ID is set, but {} and {} are not; unset it, or set them", names.rank, names.world_size));
  if (world_size->value > kMostRanks)
    throw UsageError(fmt::format("{}: at most {} ranks are possible; set a smaller number", world_size->text, kMostRanks));
  check_rank(*rank, *world_size);
  RankEnv rank_env{.rank = rank->value, .world_size = world_size->value};
  auto local = fmt::format("0 of 1: {} is not set", names.local_rank);
  if (local_rank) {
    check_rank(*local_rank, local_world_size ? *local_world_size : *world_size);
    rank_env.local_rank = local_rank->value;
    rank_env.local_world_size = local_world_size ? local_world_size->value : local_rank->value + 1;
    local = local_world_size
                ? fmt::format("{} of {}", rank_env.local_rank, rank_env.local_world_size)
                : fmt::format("{} of at least {}: {} is not set", rank_env.local_rank, rank_env.local_world_size, names.local_world_size);
  } else if (local_world_size && local_world_size->value > 1) {
    check_pair(local_world_size, local_rank, names.local_rank);
  }
  if (local_world_size && local_world_size->value > world_size->value) {
    throw UsageError(fmt::format("{} is more than {}: a host cannot have more processes than the run; correct one of them",
                                 local_world_size->text, world_size->text));
  }
  rank_env.description =
      fmt::format("rank {} of {} (local rank {}), from {} and {}", rank_env.rank, rank_env.world_size, local, names.rank, names.world_size);
  return rank_env;
}

// "; ignored: SLURM_PROCID=0 of SLURM_NTASKS=1": the variables of the launchers that were not used.
std::string describe_ignored(const VariableReader& variables, std::string_view chosen_rank) {
  std::string text;
  // RANK is not listed: if it is set, it is used or equal to the flag.
  for (const auto& names : {kOpenMpi, kPmi, slurm_names(variables)}) {
    if (names.rank == chosen_rank || !variables.text(names.rank)) continue;
    text += fmt::format("{}{} of {}", text.empty() ? "; ignored: " : ", ", variables.show(names.rank), variables.show(names.world_size));
    if (names.rank == kSlurmStep.rank && !is_slurm_step(variables)) text += " (not inside an srun step)";
  }
  return text;
}

std::string node_list_name(const VariableReader& variables) {
  return variables.text("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
}

// The node of each rank of an srun step, by rank; empty if it does not follow from Slurm's variables.
std::vector<std::string> read_slurm_hosts(const VariableReader& variables, const RankEnv& rank_env) {
  const auto list = variables.text(node_list_name(variables));
  const auto counts = variables.text(slurm_names(variables).local_world_size);
  const auto node = variables.number("SLURM_NODEID", 0);
  if (!list || !counts || !node) return {};
  const auto distribution = variables.text("SLURM_DISTRIBUTION").value_or("");
  auto hosts = hosts_of_tasks(*list, *counts, distribution, static_cast<size_t>(rank_env.world_size));
  // The result is used only if it has the right node for this rank, because a cluster may have a different default distribution.
  const auto names = host_names(*list, static_cast<size_t>(node->value) + 1);
  const bool agrees =
      !hosts.empty() && names.size() == static_cast<size_t>(node->value) + 1 && hosts[static_cast<size_t>(rank_env.rank)] == names.back();
  return agrees ? hosts : std::vector<std::string>();
}

void read_master(const VariableReader& variables, bool is_slurm, RankEnv& rank_env) {
  if (rank_env.init_method && *rank_env.init_method != "env://") return;
  rank_env.master_addr = without_brackets(variables.text("MASTER_ADDR").value_or(""));
  if (const auto port = variables.number("MASTER_PORT", 1, 65535)) {
    rank_env.master_port = port->value;
    rank_env.port_source = "MASTER_PORT";
  }
  if (!is_slurm || rank_env.world_size == 1) return;
  std::string derived;
  const auto list_name = node_list_name(variables);
  if (const auto list = variables.text(list_name); rank_env.master_addr.empty() && list) {
    const auto hosts = host_names(*list, 1);
    if (!hosts.empty()) rank_env.master_addr = hosts.front();
    if (rank_env.master_addr.empty()) {
      throw UsageError(fmt::format("{}={}: expected host names such as n[1-2],m3; set MASTER_ADDR instead", list_name, *list));
    }
    derived += fmt::format("; MASTER_ADDR={} is the first of {}", rank_env.master_addr, list_name);
  }
  const auto job = variables.unsigned_number("SLURM_JOB_ID");
  if (const auto step = variables.unsigned_number("SLURM_STEP_ID"); rank_env.master_port == 0 && job && step) {
    rank_env.master_port = step_port(*job, *step);
    rank_env.port_source = fmt::format("computed from SLURM_JOB_ID={} and SLURM_STEP_ID={}", *job, *step);
    derived += fmt::format("; MASTER_PORT={} is computed from SLURM_JOB_ID and SLURM_STEP_ID", rank_env.master_port);
  }
  rank_env.description += derived;
}

// Reads RankEnv::slurm_gpus; 0 if Slurm reports none. With --gpus-per-task Slurm gives each task its own GPUs.
std::optional<int> read_slurm_gpus(const VariableReader& variables) {
  if (variables.text("SLURMD_TRES_BIND").value_or("").find("per_task") != std::string::npos) return std::nullopt;
  const auto gpus = variables.number("SLURM_GPUS_ON_NODE", 0);
  return gpus ? gpus->value : 0;
}

// torchrun's run id is "none", which is no secret, unless --rdzv-id or --standalone is used.
RunSecret read_secret(const VariableReader& variables, std::string_view chosen_rank) {
  if (chosen_rank == kRank.rank) {
    if (auto token = variables.text(kTokenVariable)) return {RunSecret::Source::kLauncher, *std::move(token)};
    if (auto id = variables.text("TORCHELASTIC_RUN_ID"); id && *id != "none") return {RunSecret::Source::kTorchrun, *std::move(id)};
  }
  if (chosen_rank == kSlurmStep.rank) {
    if (auto job = variables.text("SLURM_JOB_ID")) return {RunSecret::Source::kSlurm, *std::move(job)};
  }
  return {};
}

RendezvousAddress at_master(const RankEnv& rank_env) {
  if (!rank_env.master_addr.empty() && rank_env.master_port != 0) {
    return {RendezvousAddress::Kind::kTcp, rank_env.master_addr, rank_env.master_port, {}, rank_env.port_source};
  }
  const char* missing = !rank_env.master_addr.empty() ? "MASTER_PORT is"
                        : rank_env.master_port != 0   ? "MASTER_ADDR is"
                                                      : "MASTER_ADDR and MASTER_PORT are";
  throw UsageError(fmt::format(
      "rank {} of {} cannot join the other ranks, because {} not set; set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port "
      "there, the same for all ranks (`mpirun -x MASTER_ADDR -x MASTER_PORT` passes them on), or give --init-method tcp://HOST:PORT, or "
      "--init-method file:///PATH on a disk that all hosts share",
      rank_env.rank, rank_env.world_size, missing));
}

// "HOST:PORT" or "[ADDRESS]:PORT"; kAlone when it is neither.
RendezvousAddress parse_host_and_port(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return {};
  const std::string given(text.substr(0, colon));
  const auto host = without_brackets(given);
  if (host == given && host.find_first_of(":[]/@") != std::string::npos) return {};
  const auto port = parse_number<int>(text.substr(colon + 1));
  if (host.empty() || !port || *port < 1 || *port > 65535) return {};
  return {RendezvousAddress::Kind::kTcp, host, *port, {}};
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
}

RankEnv find_rank_env(const RankFlags& flags, const Environment& environment) {
  const VariableReader variables(environment);
  const Claim claim = join(read_flags(flags), variables);
  RankEnv rank_env;
  if (has_names(claim)) {
    rank_env = to_place(claim);
    rank_env.init_method = flags.init_method;
    const bool is_slurm = claim.names.rank == kSlurmStep.rank;
    read_master(variables, is_slurm, rank_env);
    if (is_slurm) {
      rank_env.slurm_gpus = read_slurm_gpus(variables);
      rank_env.slurm_hosts = read_slurm_hosts(variables, rank_env);
    }
  } else if (flags.init_method) {
    throw UsageError(
        fmt::format("--init-method {} is set, but neither --rank and --world-size nor the variables of a launcher are; set --rank and "
                    "--world-size too, or omit --init-method for a single process",
                    *flags.init_method));
  } else {
    rank_env.description = "one process: no launcher has given it a rank";
  }
  if (variables.text(kRank.rank)) {
    if (const auto nodes = variables.number("GROUP_WORLD_SIZE", 1, kMostRanks)) rank_env.num_nodes = nodes->value;
    rank_env.launcher_serves_store = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    if (const auto attempt = variables.number("TORCHELASTIC_RESTART_COUNT", 0)) rank_env.restart_attempt = attempt->value;
    rank_env.error_file = variables.text(kErrorFileVariable).value_or("");
    if (const auto messages = variables.number(kLauncherMessagesVariable, 0)) rank_env.launcher_messages_descriptor = messages->value;
    if (const auto socket = variables.number(kListenVariable, 0); socket && rank_env.rank == 0) rank_env.listen_descriptor = socket->value;
  }
  rank_env.secret = read_secret(variables, claim.names.rank);
  rank_env.gloo_interface = variables.text("GLOO_SOCKET_IFNAME").value_or("");
  rank_env.description += describe_ignored(variables, claim.names.rank);
  return rank_env;
}

std::string without_brackets(std::string host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

RendezvousAddress rendezvous_address(const RankEnv& rank_env, const std::string& configured_init_method) {
  if (rank_env.world_size == 1) return {};
  const std::string& init_method = rank_env.init_method ? *rank_env.init_method : configured_init_method;
  const std::string source = (rank_env.init_method ? "--init-method " : "distributed.init_method: ") + init_method;
  if (init_method.find('?') != std::string::npos) {
    throw UsageError(source + ": the rank and the world size cannot be set here; set them with --rank and --world-size");
  }
  constexpr std::string_view kTcp = "tcp://";
  constexpr std::string_view kFile = "file://";
  const std::string_view view = init_method;
  if (view == "env://") return at_master(rank_env);
  if (view.starts_with(kTcp)) {
    auto point = parse_host_and_port(view.substr(kTcp.size()));
    point.port_source = rank_env.init_method ? "--init-method" : "distributed.init_method";
    if (point.kind == RendezvousAddress::Kind::kTcp) return point;
    throw UsageError(source + ": expected tcp://HOST:PORT (tcp://[::1]:PORT for IPv6) with a port from 1 to 65535");
  }
  if (view.starts_with(kFile)) {
    const auto path = view.substr(kFile.size());
    if (path.starts_with('/') && !path.ends_with('/')) return {RendezvousAddress::Kind::kFile, {}, 0, std::string(path)};
    throw UsageError(source + ": expected file:///PATH, an absolute path with three slashes");
  }
  throw UsageError(source + ": expected env://, tcp://HOST:PORT (tcp://[::1]:PORT for IPv6) or file:///PATH");
}

}  // namespace trainer::world
