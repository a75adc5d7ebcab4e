#include "session/rank_table.h"

#include <fmt/format.h>

#include "base/error.h"

namespace trainer::session {

using distributed::RankInfo;

nlohmann::ordered_json environment_of(const std::vector<RankInfo>& ranks) {
  auto entries = nlohmann::ordered_json::array();
  for (const auto& rank : ranks) {
    entries.push_back({{"host", rank.host},
                       {"process_id", rank.process_id},
                       {"device", rank.device},
                       {"pci_bus_id", rank.pci_bus_id},
                       {"threads", rank.num_threads}});
  }
  return entries;
}

void refuse_shared_gpus(const std::vector<RankInfo>& ranks) {
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

std::vector<std::string> table_lines(const std::vector<RankInfo>& ranks) {
  std::vector<std::string> lines;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& row = ranks[rank];
    const auto gpu = row.pci_bus_id.empty() ? "" : fmt::format(" ({})", row.pci_bus_id);
    lines.push_back(fmt::format("rank {}  {}  {}{}  {} threads", rank, row.host, row.device, gpu, row.num_threads));
  }
  return lines;
}

}  // namespace trainer::session
