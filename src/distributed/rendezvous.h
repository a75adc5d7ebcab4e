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

// A rank's process and where it runs. Gathered once, while a run starts.
struct RankInfo {
  // Known at the rendezvous.
  std::string host = {};  // host name
  int64_t process_id = 0;
  int local_rank = 0;         // assigned by the launcher
  std::string cpu_mask = {};  // the CPU cores that the process may use
  std::string address = {};   // this host's address on the route to the TCP store or, with a file store, to itself
  // Known once the placement is chosen.
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

// What each rank sends when it joins a run.
struct Hello {
  RankInfo rank;            // join_run() fills in local_rank and address
  std::string version;      // of the program and of LibTorch; must be the same on all ranks
  std::string config = {};  // the resolved experiment file, without values derived from the data set; must be the same on all ranks
  std::string config_with_data = {};  // the same with these values; empty unless each rank reads the data itself
  Problem problem = {};               // why this rank cannot continue
  int world_size = 0;                 // set by join_run(); must be the same on all ranks
};

// Describes, for a message, the differences between the configurations of rank 0 and another rank.
using DescribeDifferences = std::function<std::string(const std::string& of_rank0, const std::string& of_other)>;

// Part of the message of a rank that loses the connection to the store; rank 0's own message gives the reason.
inline constexpr std::string_view kLostRank0 = "lost the connection to rank 0";

struct Rendezvous {
  // Shared by all ranks that have the run's secret, with a key prefix for this attempt of the run.
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Store> group_store;  // the same store without sealed values, for c10d's process groups
  std::vector<RankInfo> ranks;                  // by rank
  std::string address;                          // of this rank, for gloo to listen on
  // Assigned by the launcher; the number of lower ranks on this host if it gave two of them the same number.
  int local_rank = 0;
  int local_world_size = 1;
  int num_sharing_cpus = 1;  // ranks on this host that may use the same cores as this one, including itself
};

// "A on rank 0 and B on the other rank".
std::string describe_both(const std::string& of_rank0, const std::string& of_other);

// Collective; not for a run of one process. Waits up to `timeout` for late ranks; rank 0 logs which ranks are missing. `logger` must
// outlive the stores of the result. Throws PeerError if ranks cannot join, UsageError if two ranks differ in secret, world size, version or
// configuration, DataError if they have derived different values from their data, and the problems of the ranks. An error that rank 0 finds
// is thrown on all ranks as AgreedError, with its text only on rank 0.
Rendezvous join_run(const world::RankEnv& rank_env, const world::RendezvousAddress& point, const Hello& hello,
                    const world::RunSecret& secret, std::chrono::milliseconds timeout, Logger& logger,
                    const DescribeDifferences& describe_differences = describe_both);

}  // namespace trainer::distributed
