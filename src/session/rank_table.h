#pragma once
// Where each rank of a run works.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/placement.h"
#include "distributed/process_group.h"

namespace trainer::session {

struct RankRow {
  std::string host;
  int64_t process_id = 0;
  std::string device;
  std::string pci_bus_id;  // of a GPU
  int num_threads = 1;
};

template <class Json>
void to_json(Json& json, const RankRow& row) {
  json = {{"host", row.host},
          {"process_id", row.process_id},
          {"device", row.device},
          {"pci_bus_id", row.pci_bus_id},
          {"threads", row.num_threads}};
}

// Collective: the row of every rank.
std::vector<RankRow> gather_ranks(const distributed::ProcessGroup& world, const device::Placement& placement);

// Throws UsageError when two ranks have the same GPU, which NCCL cannot serve.
void refuse_shared_gpus(const std::vector<RankRow>& ranks);

// "rank 0  host  cuda:0 (0000:3b:00.0)  8 threads" for each.
std::vector<std::string> table_lines(const std::vector<RankRow>& ranks);

}  // namespace trainer::session
