#include "distributed/rank_info.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "world/host_resources.h"

namespace trainer::distributed {

RankInfo this_process() { return {.host = world::host_name(), .process_id = getpid(), .cpu_mask = world::cpu_mask()}; }

std::string to_string(const RankInfo& rank) { return fmt::format("process {} on {}", rank.process_id, rank.host); }

void to_json(nlohmann::json& json, const RankInfo& rank) {
  json = {rank.host, rank.process_id, rank.local_rank, rank.cpu_mask, rank.address, rank.device, rank.pci_bus_id, rank.num_threads};
}

void from_json(const nlohmann::json& json, RankInfo& rank) {
  rank = {.host = json.at(0),
          .process_id = json.at(1),
          .local_rank = json.at(2),
          .cpu_mask = json.at(3),
          .address = json.at(4),
          .device = json.at(5),
          .pci_bus_id = json.at(6),
          .num_threads = json.at(7)};
}

}  // namespace trainer::distributed
