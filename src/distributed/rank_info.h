#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

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

}  // namespace trainer::distributed
