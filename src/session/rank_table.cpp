#include "session/rank_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "world/host_resources.h"

namespace trainer::session {
namespace {

RankRow parse_row(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {.host = json["host"],
          .process_id = json["process_id"],
          .device = json["device"],
          .pci_bus_id = json["pci_bus_id"],
          .num_threads = json["threads"]};
}

}  // namespace

std::vector<RankRow> gather_ranks(const distributed::ProcessGroup& world, const device::Placement& placement) {
  const RankRow mine{.host = world::host_name(),
                     .process_id = getpid(),
                     .device = placement.device.str(),
                     .pci_bus_id = placement.cuda != nullptr ? placement.cuda->pci_bus_id(placement.device.index()) : "",
                     .num_threads = placement.num_threads};
  std::vector<RankRow> ranks;
  for (const auto& row : world.all_gather_bytes(nlohmann::json(mine).dump())) ranks.push_back(parse_row(row));
  return ranks;
}

void refuse_shared_gpus(const std::vector<RankRow>& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool same = !ranks[i].pci_bus_id.empty() && ranks[i].pci_bus_id == ranks[j].pci_bus_id && ranks[i].host == ranks[j].host;
      if (!same) continue;
      throw UsageError(
          fmt::format("ranks {} and {} have the same GPU {} on {}, which NCCL cannot serve; start one process per GPU, or set "
                      "distributed.backend: gloo",
                      j, i, ranks[i].pci_bus_id, ranks[i].host));
    }
  }
}

std::vector<std::string> table_lines(const std::vector<RankRow>& ranks) {
  std::vector<std::string> lines;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& row = ranks[rank];
    const auto gpu = row.pci_bus_id.empty() ? "" : fmt::format(" ({})", row.pci_bus_id);
    lines.push_back(fmt::format("rank {}  {}  {}{}  {} threads", rank, row.host, row.device, gpu, row.num_threads));
  }
  return lines;
}

}  // namespace trainer::session
