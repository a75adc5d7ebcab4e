#pragma once
// Finds the rank of this process, the world size and the rendezvous address from the command line and the variables of launchers.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainer::world {

// The flags --rank, --world-size, --local-rank, --init-method; empty: not given.
struct RankFlags {
  std::optional<int64_t> rank = {}, world_size = {}, local_rank = {};
  std::optional<std::string> init_method = {};
};

// Variables in which `trainer launch` passes the numbers of inherited descriptors to its processes.
inline constexpr const char* kLauncherMessagesVariable = "TRAINER_LAUNCHER_MESSAGES";
inline constexpr const char* kListenVariable = "TRAINER_LAUNCHER_SOCKET";
// The variable in which `trainer launch` passes RunSecret::text.
inline constexpr const char* kTokenVariable = "TRAINER_LAUNCHER_TOKEN";

// Names the file from which torchrun reads the reason why a process has failed.
inline constexpr const char* kErrorFileVariable = "TORCHELASTIC_ERROR_FILE";

// The value of a variable; empty when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

inline constexpr int kMostRanks = 100'000;

// A text that all ranks of one run have and that other programs do not have, or would have to guess.
struct RunSecret {
  enum class Source {
    kNone,
    kLauncher,  // a random number, given by `trainer launch` on one host
    kTorchrun,  // the run id
    kSlurm,     // the job id
    kFile,      // distributed.secret_file
  };
  Source source = Source::kNone;
  std::string text = {};  // not empty, unless the source is kNone
};

struct RankEnv {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the processes of this host
  int local_world_size = 1;
  int num_nodes = 1;  // GROUP_WORLD_SIZE of launchers that start the same number of processes on each host; else 1
  std::optional<std::string> init_method = {};  // from the flag --init-method
  std::string master_addr = {};                 // for env://, IPv6 without its brackets; empty: not given
  int master_port = 0;                          // for env://; 0: not given
  std::string port_source = {};                 // "MASTER_PORT", or the variables that the port is computed from
  bool launcher_serves_store = false;           // torchrun's agent listens at master_port (TORCHELASTIC_USE_AGENT_STORE is "True")
  int restart_attempt = 0;                      // TORCHELASTIC_RESTART_COUNT
  std::string error_file = {};                  // kErrorFileVariable
  std::optional<int> slurm_gpus = {};           // for all tasks of the step on this host; empty: no srun step, or each task has its own
  std::vector<std::string> slurm_hosts = {};    // the node of each rank of an srun step, by rank; empty: not known
  std::string gloo_interface = {};              // GLOO_SOCKET_IFNAME
  int launcher_messages_descriptor = -1;        // where `trainer launch` reports how other ranks end, stop or continue; -1: none
  int listen_descriptor = -1;                   // rank 0: a socket that `trainer launch` has bound to master_port; -1: none
  RunSecret secret = {};                        // from a launcher
  std::string description = {};                 // one line for the user: the ranks, the variables that set them, and the ignored ones
};

// Uses the first source that is set: flags; RANK and WORLD_SIZE (torchrun, `trainer launch`, Kubernetes); Open MPI's variables; those of
// MPICH and Intel MPI; Slurm's inside an srun step; else a world of one process. Throws UsageError for an incomplete or impossible set
// within one source and for flags that contradict RANK, WORLD_SIZE or LOCAL_RANK.
RankEnv find_rank_env(const RankFlags& flags, const Environment& environment);

// A host as given by MASTER_ADDR or --master-addr, without the brackets around an IPv6 address ("[::1]").
std::string without_brackets(std::string host);

// Where the processes meet to form the process group.
struct RendezvousAddress {
  enum class Kind { kAlone, kTcp, kFile } kind = Kind::kAlone;
  std::string host;              // of kTcp: a name or an address, IPv6 without its brackets
  int port = 0;                  // of kTcp
  std::string path;              // of kFile, absolute
  std::string port_source = {};  // of kTcp: where the port was set, such as "MASTER_PORT"
};

// Takes the address from the flag, else from the configuration (`distributed.init_method`); env:// stands for master_addr and master_port.
// Throws UsageError.
RendezvousAddress rendezvous_address(const RankEnv& rank_env, const std::string& configured_init_method);

}  // namespace trainer::world
