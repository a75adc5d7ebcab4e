#pragma once
// How the processes of a run find each other.

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "distributed/agreement.h"
#include "launch/world/rank_env.h"

namespace trainer::distributed {

// A rank's process and where it runs: gathered once, while a run starts.
struct RankInfo {
  // Known when the ranks meet.
  std::string host = {};  // host name
  int64_t process_id = 0;
  int local_rank = 0;         // set by its launcher
  std::string cpu_mask = {};  // the cores that it may use
  std::string address = {};   // its address on the route to the others
  // Known when its placement is chosen.
  std::string device = {};      // "cuda:0"
  std::string pci_bus_id = {};  // of a GPU
  int num_threads = 1;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankInfo, host, process_id, local_rank, cpu_mask, address, device, pci_bus_id, num_threads)

bool same_host(const RankInfo& a, const RankInfo& b);

// This process, before its placement is chosen.
RankInfo this_process();

// "process 31 on host-a"
std::string to_string(const RankInfo& rank);

// What a rank sends the others when they meet.
struct Hello {
  RankInfo rank;            // join_run() fills in local_rank and address
  std::string version;      // of the program and of LibTorch: all ranks run the same
  std::string config = {};  // the resolved file, without what follows from the data set: the same on all ranks
  // With it: the same on all ranks if each reads the data itself.
  std::string config_with_data = {};
  Problem problem = {};  // why this rank cannot continue
  int world_size = 0;    // set by its launcher: the same on all ranks; filled in by join_run()
};

// What differs between the configurations of rank 0 and of another rank, for a message.
using DescribeDifferences = std::function<std::string(const std::string& of_rank0, const std::string& of_other)>;

// In the message of a rank that rank 0, which serves the store, has left: rank 0's own message has the reason.
inline constexpr std::string_view kLostRank0 = "lost the connection to rank 0";

struct Rendezvous {
  // Shared by all ranks, with a prefix for this attempt. With a secret, only ranks that know it can read and write values.
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Store> group_store;  // the same store for c10d's process groups, whose values are not sealed
  std::vector<RankInfo> ranks;                  // by rank
  std::string address;                          // of this rank, for gloo to listen on
  // From the launcher; counted from the hosts of all ranks if two ranks of one host have the same local rank.
  int local_rank = 0;
  int local_world_size = 1;
  int num_sharing_cpus = 1;  // ranks of this host that may use the same cores as this one, itself included
};

// "A on rank 0, and B on the other".
std::string describe_both(const std::string& of_rank0, const std::string& of_other);

// Collective; not for a run of one process. Waits up to `timeout` for late ranks, and logs on rank 0 which ones are missing. Throws
// StoppedDuringRendezvous when this or another rank is asked to stop; PeerError that names the ranks that did not join, a rank that joined
// twice or sent something else, a port that is in use or a host that cannot be reached; and UsageError when two ranks differ in secret,
// version or configuration (with the difference) or have a problem, and DataError when the configurations that follow from their data
// differ. An error that rank 0 finds is thrown on all ranks, with its text only on rank 0, so that it is reported once. `logger` has to
// outlive the rendezvous's stores, which warn of values without the secret.
Rendezvous join_run(const world::RankEnv& rank_env, const world::RendezvousAddress& point, const Hello& hello,
                    const world::RunSecret& secret, std::chrono::milliseconds timeout, Logger& logger,
                    const DescribeDifferences& describe_differences = describe_both);

}  // namespace trainer::distributed
