#pragma once
// Who am I in a distributed run: rank, world size and meeting point, from the command line and from what launchers put into the
// environment. Nothing is opened here. Thread-safe, but for process_environment() beside a change of the environment.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trainer::world {

// The command line's --rank, --world-size, --local-rank, --init-method; not given: empty.
struct RankFlags {
  std::optional<int64_t> rank = {}, world_size = {}, local_rank = {};
  std::optional<std::string> init_method = {};
};

// What `trainer launch` tells its processes beside RANK and its like: numbers of descriptors that they inherit.
inline constexpr const char* kLauncherMessagesVariable = "TRAINER_LAUNCHER_NOTICES";
inline constexpr const char* kListenVariable = "TRAINER_LAUNCHER_SOCKET";

// Names the file in which torchrun looks for the reason why a process has failed.
inline constexpr const char* kErrorFileVariable = "TORCHELASTIC_ERROR_FILE";

// The value of a variable; empty when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

struct RankEnv {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the processes of this host
  int local_world_size = 1;
  int num_nodes = 1;                            // with launchers that start as many processes on each (GROUP_WORLD_SIZE); else 1
  std::optional<std::string> init_method = {};  // the flag's, when given, without its ?rank=..&world_size=..
  std::string master_addr = {};                 // for env://; empty: not given
  int master_port = 0;                          // for env://; 0: not given
  std::string port_source = {};                 // "MASTER_PORT", or what the port is computed from
  bool launcher_serves_store = false;           // torchrun's agent listens at master_port (TORCHELASTIC_USE_AGENT_STORE is "True")
  int restart_attempt = 0;                      // TORCHELASTIC_RESTART_COUNT
  std::string error_file = {};                  // kErrorFileVariable
  std::optional<int> slurm_gpus = {};           // of all tasks of an srun step on this host; empty: no step, or each task has its own
  std::string gloo_interface = {};              // GLOO_SOCKET_IFNAME
  int launcher_messages_descriptor = -1;        // on which `trainer launch` reports how other ranks have ended; -1: none
  int listen_descriptor = -1;                   // of rank 0: a socket that `trainer launch` has bound to master_port; -1: none
  std::string decision = {};                    // one line for people: the source with its values, and what was passed over
};

// The first source that is there wins: flags; RANK and WORLD_SIZE (torchrun, `trainer launch`, Kubernetes); Open MPI's variables;
// MPICH's and Intel MPI's; Slurm's inside an srun step; else one process alone.
// Throws UsageError for an incomplete or impossible set within one source and for flags that contradict RANK, WORLD_SIZE or
// LOCAL_RANK; it names the variables with their values and the cure.
RankEnv find_rank_env(const RankFlags& flags, const Environment& environment);

// Where the processes meet.
struct MeetingPoint {
  enum class Kind { kAlone, kTcp, kFile } kind = Kind::kAlone;
  std::string host;              // of kTcp: a name or an address, IPv6 without its brackets
  int port = 0;                  // of kTcp
  std::string path;              // of kFile, absolute
  std::string port_source = {};  // of kTcp: what names the port, such as "MASTER_PORT"
};

// The flag's, else the configured one (`distributed.init_method`), where env:// stands for master_addr and master_port. A world
// of one process meets nobody. Throws UsageError naming what is missing or malformed.
MeetingPoint meeting_point(const RankEnv& rank_env, const std::string& configured_init_method);

}  // namespace trainer::world
